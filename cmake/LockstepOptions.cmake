# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers: one interface target that every target of ours links.
option(LOCKSTEP_WERROR "Treat warnings as errors (on in the presets)" OFF)
option(LOCKSTEP_TESTS "Build the tests" ON)
option(LOCKSTEP_COVERAGE "Instrument for gcov" OFF)
set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${LOCKSTEP_CCACHE}")
endif()

add_library(lockstep_options INTERFACE)
target_include_directories(lockstep_options INTERFACE "${PROJECT_SOURCE_DIR}/include"
                                                      "${PROJECT_SOURCE_DIR}")
target_compile_options(
  lockstep_options
  INTERFACE -Wall
            -Wextra
            -Wpedantic
            -Wshadow
            -Wconversion
            -Wnon-virtual-dtor
            -Woverloaded-virtual
            -Wold-style-cast
            # A fused multiply-add appears only where the source asks for one: same source, same bits.
            -ffp-contract=off)
# "x" + std::string at -O3 sets it off wrongly: https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105651
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(lockstep_options INTERFACE -Wno-restrict)
endif()
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_options INTERFACE -Werror)
endif()
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE}
                                                    -fno-omit-frame-pointer)
  target_link_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
  if(LOCKSTEP_SANITIZE MATCHES undefined)
    # Googletest's macros make these checks of pointers half of the time to compile a test. Code of
    # the product keeps all of them.
    set(LOCKSTEP_TEST_SANITIZE "-fno-sanitize=vptr,null,alignment,object-size")
    target_compile_options(
      lockstep_options
      INTERFACE $<$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_IS_TEST>>:${LOCKSTEP_TEST_SANITIZE}>)
  endif()
endif()
if(LOCKSTEP_SANITIZE)
  # One instruction set instead of three: these builds look for faults, and compile the kernels in a
  # third of the time. They need a CPU with AVX2.
  target_compile_options(lockstep_options INTERFACE -march=x86-64-v3 -maes -mpclmul)
  target_compile_definitions(lockstep_options INTERFACE HWY_COMPILE_ONLY_STATIC)
endif()
if(LOCKSTEP_COVERAGE)
  # Lines of tests are not counted (LOCKSTEP_IS_TEST: see LockstepTest.cmake).
  target_compile_options(lockstep_options
                         INTERFACE $<$<NOT:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_IS_TEST>>>:--coverage>)
  # Tests that end by std::_Exit call it (tests/support/mpi_main.cpp).
  target_link_options(lockstep_options INTERFACE --coverage LINKER:-u,__gcov_dump)
endif()

# One static library a layer (or a part of the runtime), from the sources beside its CMakeLists.txt.
function(lockstep_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC lockstep_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()
