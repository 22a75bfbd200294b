# SPDX-License-Identifier: Apache-2.0
# Attention and matrix products of the CUDA backend; paths from core/cuda/, twins from the tree's root.
list(APPEND LOCKSTEP_CUDA_HOST_SOURCES attention.cpp gemm.cpp gemm_context.cpp)
list(
  APPEND
  LOCKSTEP_CUDA_KERNEL_SOURCES
  kernels/attention_forward.cu
  kernels/attention_forward_bf16.cu
  kernels/attention_backward.cu
  kernels/attention_backward_bf16.cu)
list(APPEND LOCKSTEP_CUDA_TWIN_SOURCES "${PROJECT_SOURCE_DIR}/tests/fakes/cuda/attention_twins.cpp")
