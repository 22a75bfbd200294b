// SPDX-License-Identifier: Apache-2.0
#include "core/kernel_table.h"

#include "core/cuda/attention.h"
#include "core/cuda/gemm.h"
#include "core/cuda/kernels.h"

namespace lockstep::kernels {

const KernelTable& cuda_kernels() {
  static constexpr KernelTable table{
      .gemm = cuda::gemm,
      .add_bias = cuda::add_bias,
      .bias_backward = cuda::bias_backward,
      .layer_norm_forward = cuda::layer_norm_forward,
      .layer_norm_backward = cuda::layer_norm_backward,
      .gelu_forward = cuda::gelu_forward,
      .gelu_backward = cuda::gelu_backward,
      .bias_gelu_forward = cuda::bias_gelu_forward,
      .attention_forward = cuda::attention_forward,
      .attention_backward = cuda::attention_backward,
      .embedding_forward = cuda::embedding_forward,
      .embedding_backward = cuda::embedding_backward,
      .cross_entropy = cuda::cross_entropy,
      .cross_entropy_loss = cuda::cross_entropy_loss,
      .add = cuda::add,
      .fill_zero = cuda::fill_zero,
      .copy = cuda::copy,
      .convert = cuda::convert,
      .round = cuda::round,
      .add_scaled = cuda::add_scaled,
      .adamw = cuda::adamw,
      .lamb_direction = cuda::lamb_direction,
      .sgd = cuda::sgd,
      .block_square_sums = cuda::block_square_sums,
  };
  return table;
}

}  // namespace lockstep::kernels
