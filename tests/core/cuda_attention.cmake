# SPDX-License-Identifier: Apache-2.0
# The device kernels of attention as C++ on the host, for builds that have the headers of CUDA
# (lockstep_cuda_headers). The emulated device.cuh has to be found before the real one.
set_source_files_properties(${LOCKSTEP_CUDA_ATTENTION_SOURCES} PROPERTIES LANGUAGE CXX)
lockstep_test(
  cuda_attention_kernels_test
  LABEL
  fakes
  TIMEOUT
  300
  SOURCES
  cuda_attention_kernels_test.cpp
  "${PROJECT_SOURCE_DIR}/core/cuda/attention.cpp"
  "${PROJECT_SOURCE_DIR}/tests/fakes/cuda/attention_bf16.cpp"
  "${PROJECT_SOURCE_DIR}/tests/fakes/cuda/block_runner.cpp"
  ${LOCKSTEP_CUDA_ATTENTION_SOURCES}
  LIBS
  lockstep_core
  lockstep_cuda_headers
  PkgConfig::hwy)
target_include_directories(cuda_attention_kernels_test BEFORE
                           PRIVATE "${PROJECT_SOURCE_DIR}/tests/fakes/cuda/emulated")
# The kernels' own fmaf() alone contracts, as with nvcc -fmad=false.
target_compile_options(cuda_attention_kernels_test PRIVATE -ffp-contract=off -Wno-unknown-pragmas)
