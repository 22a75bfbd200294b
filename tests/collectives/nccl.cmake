# SPDX-License-Identifier: Apache-2.0
# Groups between GPUs. Included by CMakeLists.txt beside it.
if(NOT LOCKSTEP_CUDA AND NOT LOCKSTEP_CUDA_FAKE)
  return()
endif()

set(faults "")
if(LOCKSTEP_CUDA_FAKE)
  set(faults nccl_faults_test.cpp)
endif()
lockstep_test(
  nccl_test
  SOURCES
  conformance_test.cpp
  conformance_nccl_test.cpp
  nccl_pieces_test.cpp
  ${faults}
  "${PROJECT_SOURCE_DIR}/tests/support/gpus_main.cpp"
  LIBS
  lockstep_collectives
  LABEL
  ${LOCKSTEP_DEVICE_LABEL}
  TIMEOUT
  120)
