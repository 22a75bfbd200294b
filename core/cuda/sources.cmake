# SPDX-License-Identifier: Apache-2.0
# The CUDA backend: its host side; the kernels, for nvcc; and, for the preset cuda-fake, the kernels'
# twins on the host. launch.cpp and cuDNN are not for cuda-fake, where tests/fakes/cuda/ has them too.
set(LOCKSTEP_CUDA_HOST_SOURCES
    attention.cpp attention_by_library.cpp attention_choice.cpp convert.cpp copy.cpp cross_entropy.cpp device.cpp elementwise.cpp embedding.cpp
    gelu.cpp gemm.cpp gemm_context.cpp index_check.cpp kernel_table.cpp layer_norm.cpp memory.cpp
    nvml.cpp optimizer_steps.cpp square_sums.cpp stream.cpp)
if(NOT LOCKSTEP_CUDA_FAKE)
  list(APPEND LOCKSTEP_CUDA_HOST_SOURCES launch.cpp)
  if(LOCKSTEP_CUDNN_FOUND)
    list(APPEND LOCKSTEP_CUDA_HOST_SOURCES cudnn_attention.cpp cudnn_graphs.cpp)
  else()
    list(APPEND LOCKSTEP_CUDA_HOST_SOURCES cudnn_unavailable.cpp)
  endif()
endif()
set(LOCKSTEP_CUDA_ATTENTION_SOURCES attention_backward.cu attention_backward_bf16.cu
                                    attention_forward.cu attention_forward_bf16.cu)
set(LOCKSTEP_CUDA_KERNEL_SOURCES
    check_indices.cu column_sums.cu convert.cu cross_entropy.cu elementwise.cu embedding.cu gelu.cu
    layer_norm.cu optimizer_steps.cu square_sums.cu)
set(LOCKSTEP_CUDA_TWIN_SOURCES
    attention_bf16.cpp attention_twins.cpp cudnn_attention.cpp twins_elementwise.cpp
    twins_embedding.cpp twins_optimizers.cpp twins_rows.cpp)
list(TRANSFORM LOCKSTEP_CUDA_HOST_SOURCES PREPEND "${CMAKE_CURRENT_LIST_DIR}/")
list(TRANSFORM LOCKSTEP_CUDA_ATTENTION_SOURCES PREPEND "${CMAKE_CURRENT_LIST_DIR}/kernels/")
list(TRANSFORM LOCKSTEP_CUDA_KERNEL_SOURCES PREPEND "${CMAKE_CURRENT_LIST_DIR}/kernels/")
list(TRANSFORM LOCKSTEP_CUDA_TWIN_SOURCES
     PREPEND "${CMAKE_CURRENT_LIST_DIR}/../../tests/fakes/cuda/")
