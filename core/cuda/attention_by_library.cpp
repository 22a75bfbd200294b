// SPDX-License-Identifier: Apache-2.0
// Attention by whoever the stream has chosen, and what a library's kernels need around them.
#include "core/cpu/attention.h"
#include "core/cuda/attention.h"
#include "core/cuda/attention_choice.h"
#include "core/cuda/kernels.h"
#include "core/kernel_table.h"
#include "core/stream_queue.h"

namespace lockstep::kernels::cuda {
namespace {

using lockstep::cuda::AttentionChoice;
using lockstep::cuda::AttentionShape;
using lockstep::cuda::FusedAttention;

AttentionShape shape_of(const Tensor& qkv, int heads) {
  const AttentionArrays arrays = attention_sizes(qkv, heads);
  return {.batch = static_cast<std::int64_t>(arrays.batch),
          .length = static_cast<std::int64_t>(arrays.length),
          .heads = heads,
          .width = static_cast<std::int64_t>(arrays.width)};
}

// Null: our own kernels.
FusedAttention* library_of(Stream& stream, const Tensor& qkv, int heads, AttentionMath math) {
  if (math != AttentionMath::bf16 || qkv.size() == 0) return nullptr;
  AttentionChoice* const choice = lockstep::detail::queue_of(stream).attention();
  return choice == nullptr ? nullptr : choice->library_for(stream, shape_of(qkv, heads));
}

// Its memory may be given out again at once: what follows comes later on the stream.
Tensor narrow(Stream& stream, const Tensor& x) {
  Tensor narrowed(stream.device(), x.shape(), DType::bf16);
  convert(stream, x, narrowed);
  return narrowed;
}

}  // namespace

void attention_forward_by(FusedAttention& library, Stream& stream, const Tensor& qkv, int heads,
                          const Tensor& y, const Tensor& log_sum_exp) {
  const Tensor narrow_y(stream.device(), y.shape(), DType::bf16);
  library.forward(stream, shape_of(qkv, heads), narrow(stream, qkv), narrow_y, log_sum_exp);
  convert(stream, narrow_y, y);
}

void attention_backward_by(FusedAttention& library, Stream& stream, const Tensor& qkv,
                           const Tensor& y, const Tensor& y_grad, const Tensor& log_sum_exp,
                           int heads, const Tensor& qkv_grad) {
  const Tensor narrow_grad(stream.device(), qkv_grad.shape(), DType::bf16);
  // y is one that forward has widened: it loses nothing.
  library.backward(stream, shape_of(qkv, heads), narrow(stream, qkv), narrow(stream, y),
                   narrow(stream, y_grad), log_sum_exp, narrow_grad);
  convert(stream, narrow_grad, qkv_grad);
}

void attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                       const Tensor& log_sum_exp, AttentionMath math) {
  FusedAttention* const library = library_of(stream, qkv, heads, math);
  if (library == nullptr) {
    own_attention_forward(stream, qkv, heads, y, log_sum_exp, math);
  } else {
    attention_forward_by(*library, stream, qkv, heads, y, log_sum_exp);
  }
}

void attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y, const Tensor& y_grad,
                        const Tensor& log_sum_exp, int heads, const Tensor& qkv_grad,
                        AttentionMath math) {
  FusedAttention* const library = library_of(stream, qkv, heads, math);
  if (library == nullptr) {
    own_attention_backward(stream, qkv, y, y_grad, log_sum_exp, heads, qkv_grad, math);
  } else {
    attention_backward_by(*library, stream, qkv, y, y_grad, log_sum_exp, heads, qkv_grad);
  }
}

}  // namespace lockstep::kernels::cuda

namespace lockstep::kernels {

std::vector<std::string> cuda_notes(Stream& stream) {
  lockstep::cuda::AttentionChoice* const choice = detail::queue_of(stream).attention();
  return choice == nullptr ? std::vector<std::string>() : choice->take_notes();
}

}  // namespace lockstep::kernels
