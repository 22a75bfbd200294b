# SPDX-License-Identifier: Apache-2.0
# Everything here is a Debian 12 package installed by scripts/setup.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(CURL 7.85 REQUIRED)
find_package(Boost REQUIRED COMPONENTS program_options)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX) # the threading of Debian's oneDNN
find_package(HDF5 REQUIRED COMPONENTS C)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
find_library(LOCKSTEP_ISAL isal REQUIRED)
find_library(LOCKSTEP_DNNL dnnl REQUIRED)

add_library(lockstep_isal INTERFACE)
target_link_libraries(lockstep_isal INTERFACE "${LOCKSTEP_ISAL}")

add_library(lockstep_hdf5 INTERFACE)
target_include_directories(lockstep_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(lockstep_hdf5 INTERFACE ${HDF5_C_LIBRARIES})

# Open MPI's old C++ classes would be exported with ours.
add_library(lockstep_mpi INTERFACE)
target_link_libraries(lockstep_mpi INTERFACE MPI::MPI_C)
target_compile_definitions(lockstep_mpi INTERFACE OMPI_SKIP_MPICXX)

# Debian's dnnl-config.cmake asks for the OpenCL headers, which a CPU build has no use for.
add_library(DNNL::dnnl INTERFACE IMPORTED)
target_link_libraries(DNNL::dnnl INTERFACE "${LOCKSTEP_DNNL}")
