# SPDX-License-Identifier: Apache-2.0
# Tests of processes. Included by CMakeLists.txt beside it.
lockstep_test(
  processes_test
  SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/bootstrap_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/control_channel_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/exit_rendezvous_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/handshake_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/mesh_shape_test.cpp
  LIBS
  lockstep_collectives)
target_include_directories(processes_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")

lockstep_mpi_test(
  process_group_mpi_test
  SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/conformance_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/conformance_mpi_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/lanes_mpi_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/process_group_mpi_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/mesh_mpi_test.cpp
  LIBS
  lockstep_collectives
  RANKS
  1
  2
  3
  4)
target_include_directories(process_group_mpi_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")

# The same tests over messages, which one host takes only where it is forced.
foreach(ranks 2 3 4)
  add_test(NAME process_group_mpi_test.mpi.${ranks}
           COMMAND "${PROJECT_SOURCE_DIR}/scripts/mpirun-local" -n ${ranks}
                   $<TARGET_FILE:process_group_mpi_test> --backend=mpi)
  set_tests_properties(process_group_mpi_test.mpi.${ranks} PROPERTIES LABELS mpi TIMEOUT 120
                                                                      RUN_SERIAL ON)
endforeach()

# Between GPUs, chosen and forced; over the fakes, as a machine of the tests has none.
if(LOCKSTEP_CUDA_FAKE)
  foreach(case "auto 2" "auto 4" "nccl 3")
    string(REPLACE " " ";" words "${case}")
    list(GET words 0 backend)
    list(GET words 1 ranks)
    set(name process_group_mpi_test.gpus.${backend}.${ranks})
    add_test(NAME ${name}
             COMMAND "${PROJECT_SOURCE_DIR}/scripts/mpirun-local" -n ${ranks}
                     $<TARGET_FILE:process_group_mpi_test> --device=cuda --backend=${backend})
    set_tests_properties(${name} PROPERTIES LABELS fakes TIMEOUT 120 RUN_SERIAL ON
                                            ENVIRONMENT LOCKSTEP_FAKE_GPUS=4)
  endforeach()
  add_executable(nccl_probe ${CMAKE_CURRENT_LIST_DIR}/nccl_probe.cpp)
  add_dependencies(fakes_tests nccl_probe process_group_mpi_test)
  target_link_libraries(nccl_probe PRIVATE lockstep_collectives lockstep_options)
  add_test(NAME nccl_fault_test
           COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/fault/nccl_fault_test.py"
                   $<TARGET_FILE:nccl_probe> "${PROJECT_SOURCE_DIR}/scripts/mpirun-local")
  set_tests_properties(nccl_fault_test PROPERTIES LABELS fakes TIMEOUT 180 RUN_SERIAL ON)

  # Whether every transport really passes the same tests, those between GPUs included.
  add_test(NAME Conformance.AllTransportsPassTheSameTests
           COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/same_conformance_test.py"
                   $<TARGET_FILE:collectives_test> $<TARGET_FILE:nccl_test>
                   $<TARGET_FILE:process_group_mpi_test> "${PROJECT_SOURCE_DIR}/scripts/mpirun-local")
  set_tests_properties(Conformance.AllTransportsPassTheSameTests
                       PROPERTIES LABELS fakes TIMEOUT 180 RUN_SERIAL ON)
  add_dependencies(fakes_tests collectives_test)
endif()

# And over two levels: ranks with another host name count as another host.
foreach(layout "a a b b" "a b a b" "a a b")
  string(REPLACE " " "" name "${layout}")
  add_test(NAME process_group_mpi_test.hosts.${name}
           COMMAND "${PROJECT_SOURCE_DIR}/tests/support/on_hosts" "${layout}"
                   $<TARGET_FILE:process_group_mpi_test>)
  set_tests_properties(process_group_mpi_test.hosts.${name}
                       PROPERTIES LABELS mpi TIMEOUT 120 RUN_SERIAL ON SKIP_RETURN_CODE 77)
endforeach()

# Ranks that are killed, stopped or throw, as the script next door does to them.
add_executable(fault_probe ${CMAKE_CURRENT_LIST_DIR}/fault_probe.cpp)
target_link_libraries(fault_probe PRIVATE lockstep_collectives lockstep_options)
add_test(NAME lost_rank_test
         COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/fault/lost_rank_test.py"
                 $<TARGET_FILE:fault_probe> "${PROJECT_SOURCE_DIR}/scripts/mpirun-local")
set_tests_properties(lost_rank_test PROPERTIES LABELS fault TIMEOUT 300 RUN_SERIAL ON
                                               SKIP_RETURN_CODE 77)

# A program that has initialised MPI with too little for the communication thread is told so.
add_executable(mpi_owner ${CMAKE_CURRENT_LIST_DIR}/mpi_owner.cpp)
target_link_libraries(mpi_owner PRIVATE lockstep_collectives lockstep_mpi lockstep_options)
add_test(NAME mpi_owner COMMAND "${PROJECT_SOURCE_DIR}/scripts/mpirun-local" -n 2
                                $<TARGET_FILE:mpi_owner>)
set_tests_properties(mpi_owner PROPERTIES LABELS mpi TIMEOUT 30 RUN_SERIAL ON)

add_test(NAME mpirun_local_test COMMAND "${PROJECT_SOURCE_DIR}/tests/fault/mpirun_local_test.sh"
                                        "${PROJECT_SOURCE_DIR}/scripts/mpirun-local")
set_tests_properties(mpirun_local_test PROPERTIES LABELS mpi TIMEOUT 60 RUN_SERIAL ON)
