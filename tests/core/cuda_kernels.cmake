# SPDX-License-Identifier: Apache-2.0
# The kernels of CUDA, but for gemm and attention, against those of the CPU.
if(NOT LOCKSTEP_CUDA AND NOT LOCKSTEP_CUDA_FAKE)
  return()
endif()

lockstep_test(
  cuda_kernels_test
  SOURCES
  cuda_kernels_test.cpp
  LIBS
  lockstep_core
  PkgConfig::hwy
  LABEL
  ${LOCKSTEP_DEVICE_LABEL})

# The kernels' own sources as C++ on the host: their indices, barriers and sums, without a GPU. They
# and their launch come before the library's.
set_source_files_properties(
  ${LOCKSTEP_CUDA_KERNEL_SOURCES}
  PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
             "-include;${PROJECT_SOURCE_DIR}/tests/fakes/cuda/emulated/cuda_words.h")
lockstep_test(
  cuda_kernels_emulated_test
  LABEL
  fakes
  TIMEOUT
  300
  SOURCES
  cuda_kernels_test.cpp
  "${PROJECT_SOURCE_DIR}/tests/fakes/cuda/block_runner.cpp"
  "${PROJECT_SOURCE_DIR}/tests/fakes/cuda/emulated/launch.cpp"
  ${LOCKSTEP_CUDA_KERNEL_SOURCES}
  LIBS
  lockstep_core
  lockstep_cuda_headers
  PkgConfig::hwy)
target_include_directories(cuda_kernels_emulated_test BEFORE
                           PRIVATE "${PROJECT_SOURCE_DIR}/tests/fakes/cuda/emulated")
target_compile_options(cuda_kernels_emulated_test PRIVATE -Wno-unknown-pragmas)
# ctest tells the two apart by their suites.
target_compile_definitions(
  cuda_kernels_emulated_test PRIVATE CudaKernels=EmulatedCudaKernels
                                     CudaCrossEntropy=EmulatedCudaCrossEntropy)
