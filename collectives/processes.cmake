# SPDX-License-Identifier: Apache-2.0
# Processes of a job: how they start, find each other and end. Included by CMakeLists.txt beside it.
set(LOCKSTEP_PROCESS_SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/bootstrap.cpp
    ${CMAKE_CURRENT_LIST_DIR}/control_channel.cpp
    ${CMAKE_CURRENT_LIST_DIR}/control_frame.cpp
    ${CMAKE_CURRENT_LIST_DIR}/control_link.cpp
    ${CMAKE_CURRENT_LIST_DIR}/exit_rendezvous.cpp
    ${CMAKE_CURRENT_LIST_DIR}/handshake.cpp
    ${CMAKE_CURRENT_LIST_DIR}/host_identity.cpp
    ${CMAKE_CURRENT_LIST_DIR}/mesh.cpp
    ${CMAKE_CURRENT_LIST_DIR}/process_group.cpp
    ${CMAKE_CURRENT_LIST_DIR}/run_job.cpp
    ${CMAKE_CURRENT_LIST_DIR}/mpi/combine.cpp
    ${CMAKE_CURRENT_LIST_DIR}/mpi/mpi_backend.cpp
    ${CMAKE_CURRENT_LIST_DIR}/mpi/mpi_process.cpp
    ${CMAKE_CURRENT_LIST_DIR}/mpi/mpi_transfers.cpp
    ${CMAKE_CURRENT_LIST_DIR}/two_level/two_level_backend.cpp)
