# SPDX-License-Identifier: Apache-2.0
# Streams and kernels of the CPU backend, one idea a file. Files that include simd_targets.h are compiled
# once for each instruction set, inside one object.
set(LOCKSTEP_CPU_KERNEL_SOURCES "")
foreach(
  source IN
  ITEMS adamw_factors.cpp
        attention.cpp
        attention_backward.cpp
        attention_forward.cpp
        convert.cpp
        cross_entropy.cpp
        elementwise.cpp
        embedding.cpp
        gelu.cpp
        gemm.cpp
        instruction_set.cpp
        layer_norm.cpp
        md5_blocks.cpp
        optimizer_steps.cpp
        square_sums.cpp
        stream.cpp)
  list(APPEND LOCKSTEP_CPU_KERNEL_SOURCES "${CMAKE_CURRENT_LIST_DIR}/${source}")
endforeach()
