# SPDX-License-Identifier: Apache-2.0
# The NCCL backend. A build without CUDA compiles unavailable.cpp in its place.
set(LOCKSTEP_NCCL_SOURCES check.cpp communicator_handle.cpp group_backend.cpp group_sums.cpp make.cpp
                          place.cpp reduction.cpp registrations.cpp)
list(TRANSFORM LOCKSTEP_NCCL_SOURCES PREPEND "${CMAKE_CURRENT_LIST_DIR}/")
