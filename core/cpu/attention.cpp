// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/attention.h"

namespace lockstep::kernels {

AttentionArrays check_attention(const Arguments& arguments, const Tensor& qkv, int heads,
                                const Tensor& y, const Tensor& log_sum_exp) {
  arguments.tensor("qkv", qkv);
  arguments.require(qkv.shape().size() == 3 && qkv.dim(2) % 3 == 0, "qkv is not [B, T, 3C]",
                    "query, key and value lie side by side in the last dimension");
  const std::int64_t model = qkv.dim(2) / 3;
  arguments.require(heads > 0 && model % heads == 0, "heads do not divide C",
                    "choose model.heads so that it divides model.hidden");
  arguments.sized("y", y, qkv.dim(0) * qkv.dim(1) * model);
  arguments.sized("log_sum_exp", log_sum_exp, qkv.dim(0) * heads * qkv.dim(1));
  return {.batch = to_size(qkv.dim(0)),
          .length = to_size(qkv.dim(1)),
          .heads = to_size(heads),
          .width = to_size(model / heads)};
}

}  // namespace lockstep::kernels
