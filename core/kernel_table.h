// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels.h"

/// The kernels of core/kernels.h that are queued on a stream. Each device has all of them.
#define LOCKSTEP_FOR_EACH_KERNEL(apply) \
  apply(gemm);                          \
  apply(add_bias);                      \
  apply(bias_backward);                 \
  apply(layer_norm_forward);            \
  apply(layer_norm_backward);           \
  apply(gelu_forward);                  \
  apply(gelu_backward);                 \
  apply(bias_gelu_forward);             \
  apply(attention_forward);             \
  apply(attention_backward);            \
  apply(embedding_forward);             \
  apply(embedding_backward);            \
  apply(cross_entropy);                 \
  apply(cross_entropy_loss);            \
  apply(add);                           \
  apply(fill_zero);                     \
  apply(copy);                          \
  apply(convert);                       \
  apply(round);                         \
  apply(add_scaled);                    \
  apply(adamw);                         \
  apply(lamb_direction);                \
  apply(sgd);                           \
  apply(block_square_sums)

#define LOCKSTEP_DECLARE_KERNEL(name) decltype(kernels::name) name

namespace lockstep::kernels {

/// Each is the function of that name in core/kernels.h for one kind of device. The function itself
/// has checked the arguments.
namespace cpu {
LOCKSTEP_FOR_EACH_KERNEL(LOCKSTEP_DECLARE_KERNEL);
}  // namespace cpu

// NOLINTNEXTLINE(bugprone-macro-parentheses): it declares a member
#define LOCKSTEP_KERNEL_POINTER(name) decltype(kernels::name)* name
struct KernelTable {
  LOCKSTEP_FOR_EACH_KERNEL(LOCKSTEP_KERNEL_POINTER);
};
#undef LOCKSTEP_KERNEL_POINTER

/// In core/cuda/; a build without CUDA throws DeviceError.
const KernelTable& cuda_kernels();
/// notes() of a stream of CUDA.
std::vector<std::string> cuda_notes(Stream& stream);

}  // namespace lockstep::kernels
