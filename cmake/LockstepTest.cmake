# SPDX-License-Identifier: Apache-2.0
find_package(GTest REQUIRED)
include(GoogleTest)

# What the tests of devices need, all that is wanted of a build with fake CUDA libraries
# (scripts/check-cuda).
add_custom_target(fakes_tests)

# lockstep_test(name SOURCES a_test.cpp … LIBS lockstep_core … [LABEL unit] [TIMEOUT seconds])
# One binary; ctest lists each of its tests by its sentence.
function(lockstep_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES LOCKSTEP_IS_TEST ON)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main lockstep_options)
  if(ARG_LABEL STREQUAL fakes)
    add_dependencies(fakes_tests ${name})
  endif()
  gtest_discover_tests(
    ${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
endfunction()

# lockstep_mpi_test(name SOURCES … LIBS … RANKS 1 2 4 [TIMEOUT seconds])
# A binary with its own main (tests/support/mpi_main.cpp) and one ctest entry a rank count.
function(lockstep_mpi_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;RANKS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES} "${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp")
  set_target_properties(${name} PROPERTIES LOCKSTEP_IS_TEST ON)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest lockstep_mpi
                                        lockstep_options)
  foreach(ranks IN LISTS ARG_RANKS)
    add_test(NAME ${name}.${ranks}
             COMMAND "${PROJECT_SOURCE_DIR}/scripts/mpirun-local" -n ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.${ranks} PROPERTIES LABELS mpi TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ON)
  endforeach()
endfunction()

# lockstep_script_test(name COMMAND … LABEL fault [TIMEOUT seconds]): a script that uses the command
# as a user would. It exits with 77 where something it needs is missing.
function(lockstep_script_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "COMMAND" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  set_tests_properties(
    ${name}
    PROPERTIES LABELS ${ARG_LABEL}
               TIMEOUT ${ARG_TIMEOUT}
               RUN_SERIAL ON
               SKIP_RETURN_CODE 77
               ENVIRONMENT "LOCKSTEP_BIN=$<TARGET_FILE:lockstep>;LOCKSTEP_SOURCE=${PROJECT_SOURCE_DIR}")
endfunction()
