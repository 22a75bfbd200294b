// SPDX-License-Identifier: Apache-2.0
// A host program that owns MPI and initialised it without threads: a process group must refuse,
// with both levels named, and not hang. Ends with 0 if it does.
#include <mpi.h>

#include <cstdio>
#include <string>

#include "lockstep/collectives/process_group.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::string refusal;
  try {
    lockstep::ProcessGroup::init();
  } catch (const lockstep::ConfigError& error) {
    refusal = error.what();
  }
  MPI_Finalize();
  std::printf("%s\n", refusal.c_str());
  const bool named =
      refusal.find("required MPI_THREAD_MULTIPLE, provided MPI_THREAD_SINGLE") != std::string::npos;
  return named ? 0 : 1;
}
