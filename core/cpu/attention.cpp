// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/attention.h"

#include "core/arguments.h"

namespace lockstep::kernels {

AttentionArrays attention_sizes(const Tensor& qkv, int heads) {
  return {.batch = to_size(qkv.dim(0)),
          .length = to_size(qkv.dim(1)),
          .heads = to_size(heads),
          .width = to_size(qkv.dim(2) / 3 / heads)};
}

}  // namespace lockstep::kernels
