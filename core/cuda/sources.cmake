# SPDX-License-Identifier: Apache-2.0
# The CUDA backend but for gemm and attention: streams and memory, the functions that launch kernels, the
# kernels for nvcc, and, for the preset cuda-fake, the kernels' twins on the host.
set(LOCKSTEP_CUDA_HOST_SOURCES "")
foreach(
  source IN
  ITEMS convert.cpp
        cross_entropy.cpp
        elementwise.cpp
        embedding.cpp
        gelu.cpp
        index_check.cpp
        kernel_table.cpp
        layer_norm.cpp
        memory.cpp
        optimizer_steps.cpp
        square_sums.cpp
        stream.cpp)
  list(APPEND LOCKSTEP_CUDA_HOST_SOURCES "${CMAKE_CURRENT_LIST_DIR}/${source}")
endforeach()

set(LOCKSTEP_CUDA_KERNEL_SOURCES "")
foreach(
  source IN
  ITEMS check_indices.cu
        column_sums.cu
        convert.cu
        cross_entropy.cu
        elementwise.cu
        embedding.cu
        gelu.cu
        layer_norm.cu
        optimizer_steps.cu
        square_sums.cu)
  list(APPEND LOCKSTEP_CUDA_KERNEL_SOURCES "${CMAKE_CURRENT_LIST_DIR}/kernels/${source}")
endforeach()

set(LOCKSTEP_CUDA_TWIN_SOURCES "")
foreach(source IN ITEMS twins_elementwise.cpp twins_embedding.cpp twins_optimizers.cpp
                        twins_rows.cpp)
  list(APPEND LOCKSTEP_CUDA_TWIN_SOURCES
       "${CMAKE_CURRENT_LIST_DIR}/../../tests/fakes/cuda/${source}")
endforeach()
