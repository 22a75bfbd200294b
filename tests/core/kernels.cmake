# SPDX-License-Identifier: Apache-2.0
lockstep_test(
  kernels_test
  SOURCES
  functors_test.cpp
  kernels_arguments_test.cpp
  kernels_attention_test.cpp
  kernels_bits_test.cpp
  kernels_convert_test.cpp
  kernels_cross_entropy_test.cpp
  kernels_elementwise_test.cpp
  kernels_embedding_test.cpp
  kernels_gemm_test.cpp
  kernels_golden_test.cpp
  kernels_layer_norm_test.cpp
  kernels_optimizer_test.cpp
  md5_test.cpp
  LIBS
  lockstep_core
  PkgConfig::hwy
  nlohmann_json::nlohmann_json)
target_compile_definitions(kernels_test
                           PRIVATE LOCKSTEP_GOLDEN_FOLDER="${PROJECT_SOURCE_DIR}/tests/golden")
include(cuda_kernels.cmake)
