# SPDX-License-Identifier: Apache-2.0
# The CUDA backend: where its toolkit lies, and the targets that its users link.
#
#   LOCKSTEP_CUDA        kernels by nvcc, the CUDA runtime linked statically, cuBLASLt and NCCL. What comes
#                        out starts without a GPU and without a driver.
#   LOCKSTEP_CUDA_FAKE   the same host sources over the libraries of tests/fakes/cuda and kernels' twins:
#                        needs the headers only, and runs on any machine
#   LOCKSTEP_CUDNN       attention by cuDNN, where the headers of it and of its frontend are found. The
#                        library itself is opened at run time, where it is there.
#
# Afterwards there are lockstep_cuda_headers (also nvml.h, for its declarations), lockstep_cudart,
# lockstep_cublaslt and lockstep_nccl, and the lists of core/cuda/sources.cmake.
option(LOCKSTEP_CUDA "Build the CUDA backend" OFF)
option(LOCKSTEP_CUDA_FAKE "Build the CUDA backend over fake libraries, for tests without a GPU" OFF)
option(LOCKSTEP_CUDNN "With LOCKSTEP_CUDA: use cuDNN where its headers are found" ON)
if(LOCKSTEP_CUDA AND LOCKSTEP_CUDA_FAKE)
  message(FATAL_ERROR "LOCKSTEP_CUDA and LOCKSTEP_CUDA_FAKE are two builds: choose one")
endif()
if(NOT LOCKSTEP_CUDA AND NOT LOCKSTEP_CUDA_FAKE)
  return()
endif()

# sm_100 begins with 12.8; scripts/setup, the wheels and the tests are of 13.
set(LOCKSTEP_CUDA_LEAST 13.0)
function(lockstep_check_nvcc result nvcc)
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE said ERROR_QUIET)
  if(NOT said MATCHES "release ([0-9.]+)" OR CMAKE_MATCH_1 VERSION_LESS LOCKSTEP_CUDA_LEAST)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# What scripts/setup --cuda has put into build/cuda-toolkit is what the machine lacks, or was asked for:
# it comes first. Searched anew each time, as the next setup may decide otherwise.
set(wheels "${PROJECT_SOURCE_DIR}/build/cuda-toolkit")
find_program(nvcc nvcc HINTS "${wheels}/bin" PATHS /usr/local/cuda/bin VALIDATOR lockstep_check_nvcc
             NO_CACHE)
set(roots "${wheels}" /usr/local/cuda)
if(nvcc)
  file(REAL_PATH "${nvcc}" nvcc)
  cmake_path(GET nvcc PARENT_PATH folder)
  cmake_path(GET folder PARENT_PATH folder)
  list(INSERT roots 1 "${folder}")
elseif(LOCKSTEP_CUDA)
  list(APPEND missing "nvcc ${LOCKSTEP_CUDA_LEAST} or newer")
endif()

set(include_suffixes include targets/x86_64-linux/include)
set(library_suffixes lib64 lib targets/x86_64-linux/lib)
find_path(cudart_include cuda_runtime_api.h PATHS ${roots} PATH_SUFFIXES ${include_suffixes}
          NO_DEFAULT_PATH NO_CACHE)
find_path(cublaslt_include cublasLt.h PATHS ${roots} PATH_SUFFIXES ${include_suffixes}
          NO_DEFAULT_PATH NO_CACHE)
find_path(nccl_include nccl.h HINTS ${roots} PATH_SUFFIXES ${include_suffixes} NO_CACHE)
find_path(nvml_include nvml.h HINTS ${roots} PATH_SUFFIXES ${include_suffixes} NO_CACHE)
set(needed cudart_include cublaslt_include nccl_include nvml_include)
if(LOCKSTEP_CUDA)
  find_library(cudart_library cudart_static PATHS ${roots} PATH_SUFFIXES ${library_suffixes}
               NO_DEFAULT_PATH NO_CACHE)
  find_library(cublaslt_library cublasLt PATHS ${roots} PATH_SUFFIXES ${library_suffixes}
               NO_DEFAULT_PATH NO_CACHE)
  find_library(nccl_library nccl HINTS ${roots} PATH_SUFFIXES ${library_suffixes} NO_CACHE)
  list(APPEND needed cudart_library cublaslt_library nccl_library)
endif()
foreach(part IN LISTS needed)
  if(NOT ${part})
    list(APPEND missing ${part})
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR "the CUDA backend needs what scripts/setup --cuda finds or fetches; missing: "
                      "${missing}")
endif()

set(LOCKSTEP_CUDA_INCLUDE_DIRS "${cudart_include}" "${cublaslt_include}" "${nccl_include}"
                               "${nvml_include}")
find_path(cudnn_include cudnn.h HINTS ${roots} PATH_SUFFIXES ${include_suffixes} NO_CACHE)
find_path(cudnn_frontend_include cudnn_frontend.h HINTS ${roots} PATH_SUFFIXES ${include_suffixes}
          NO_CACHE)
if(LOCKSTEP_CUDA AND LOCKSTEP_CUDNN AND cudnn_include AND cudnn_frontend_include)
  set(LOCKSTEP_CUDNN_FOUND TRUE)
  set(LOCKSTEP_CUDNN_DEFINITIONS NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING CUDNN_FRONTEND_SKIP_JSON_LIB)
  # g++ 12 sees vectors of negative sizes in its headers, once it has inlined them.
  set(LOCKSTEP_CUDNN_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
  message(STATUS "CUDA: cudnn.h from ${cudnn_include}, its frontend from ${cudnn_frontend_include}")
  list(APPEND LOCKSTEP_CUDA_INCLUDE_DIRS "${cudnn_include}" "${cudnn_frontend_include}")
else()
  set(LOCKSTEP_CUDNN_FOUND FALSE)
endif()
list(REMOVE_DUPLICATES LOCKSTEP_CUDA_INCLUDE_DIRS)
add_library(lockstep_cuda_headers INTERFACE)
target_include_directories(lockstep_cuda_headers SYSTEM INTERFACE ${LOCKSTEP_CUDA_INCLUDE_DIRS})
foreach(part IN ITEMS cudart cublaslt nccl)
  add_library(lockstep_${part} INTERFACE)
  target_link_libraries(lockstep_${part} INTERFACE lockstep_cuda_headers)
  if(LOCKSTEP_CUDA_FAKE)
    target_link_libraries(lockstep_${part} INTERFACE lockstep_fake_cuda)
  else()
    target_link_libraries(lockstep_${part} INTERFACE "${${part}_library}")
    message(STATUS "CUDA: ${part} from ${${part}_library}")
  endif()
endforeach()
target_link_libraries(lockstep_cudart INTERFACE Threads::Threads ${CMAKE_DL_LIBS} rt)

# The sources. A kernel is a .cu file with its launch table; all else of the backend is C++.
include("${PROJECT_SOURCE_DIR}/core/cuda/sources.cmake")

if(LOCKSTEP_CUDA_FAKE)
  add_subdirectory("${PROJECT_SOURCE_DIR}/tests/fakes/cuda")
endif()

if(LOCKSTEP_CUDA)
  # The toolkit may have changed since the last time: CMake would keep to the one it has examined.
  set(examined "${CMAKE_PLATFORM_INFO_DIR}/CMakeCUDACompiler.cmake")
  if(EXISTS "${examined}")
    file(READ "${examined}" text)
    string(FIND "${text}" "set(CMAKE_CUDA_COMPILER \"${nvcc}\")" same)
    if(same EQUAL -1)
      file(REMOVE "${examined}")
    endif()
  endif()
  set(CMAKE_CUDA_COMPILER "${nvcc}" CACHE FILEPATH "nvcc" FORCE)
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  # sm_80 also runs on 8.6 and 8.9, sm_100 on 10.3; PTX is for what comes after.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25.1 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY None) # lockstep_cudart is it
  # What ptxas says of each kernel is kept for scripts/list_kernels.py.
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${PROJECT_SOURCE_DIR}/scripts/keep_ptxas.sh"
                                   "${PROJECT_BINARY_DIR}/ptxas" ${LOCKSTEP_CCACHE})
endif()

# lockstep_cuda_library(name sources…): objects of kernels.
function(lockstep_cuda_library name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE lockstep_cuda_headers)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # As on the CPU: a fused multiply-add appears only where the source asks for one. nvcc's own code
  # has old-style casts and line directives that -Wpedantic refuses.
  target_compile_options(
    ${name}
    PRIVATE -O3
            -fmad=false
            --expt-relaxed-constexpr
            "SHELL:-Xptxas -v"
            -Xcompiler=-Wall,-Wextra,-Wshadow,-Wconversion,-Wnon-virtual-dtor,-Woverloaded-virtual
            -Xcompiler=-ffp-contract=off)
  if(LOCKSTEP_WERROR)
    target_compile_options(${name} PRIVATE "SHELL:--Werror all-warnings" -Xcompiler=-Werror)
  endif()
endfunction()
