// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels.h"

/// The kernels of core/kernels.h on CUDA devices, under the same names and with the same promises.
///
/// They return when all is queued. They do not keep their tensors: memory of a device that is freed
/// on the host serves nobody else before the work queued on it is done, which is the allocator's
/// task. Pointers to UpdateGate, LossSums and block sums are of host_memory(). An index outside its
/// table leaves every array as it was, and fails the stream behind the kernel.
namespace lockstep::kernels::cuda {

#define LOCKSTEP_CUDA_KERNEL(name) decltype(kernels::name) name
LOCKSTEP_CUDA_KERNEL(add_bias);
LOCKSTEP_CUDA_KERNEL(bias_backward);
LOCKSTEP_CUDA_KERNEL(layer_norm_forward);
LOCKSTEP_CUDA_KERNEL(layer_norm_backward);
LOCKSTEP_CUDA_KERNEL(gelu_forward);
LOCKSTEP_CUDA_KERNEL(gelu_backward);
LOCKSTEP_CUDA_KERNEL(bias_gelu_forward);
LOCKSTEP_CUDA_KERNEL(embedding_forward);
LOCKSTEP_CUDA_KERNEL(embedding_backward);
LOCKSTEP_CUDA_KERNEL(cross_entropy);
LOCKSTEP_CUDA_KERNEL(cross_entropy_loss);
LOCKSTEP_CUDA_KERNEL(add);
LOCKSTEP_CUDA_KERNEL(fill_zero);
LOCKSTEP_CUDA_KERNEL(copy);
LOCKSTEP_CUDA_KERNEL(convert);
LOCKSTEP_CUDA_KERNEL(round);
LOCKSTEP_CUDA_KERNEL(add_scaled);
LOCKSTEP_CUDA_KERNEL(adamw);
LOCKSTEP_CUDA_KERNEL(lamb_direction);
LOCKSTEP_CUDA_KERNEL(sgd);
LOCKSTEP_CUDA_KERNEL(block_square_sums);
#undef LOCKSTEP_CUDA_KERNEL

}  // namespace lockstep::kernels::cuda
