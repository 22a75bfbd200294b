// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/mpi_process.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "collectives/bootstrap.h"

namespace lockstep {
namespace {

const char* level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

// Open MPI writes to the sockets of its peers without MSG_NOSIGNAL: the default action of SIGPIPE
// would end every survivor of a lost rank before it can say anything. A handler of the program
// stays.
void keep_broken_pipes_quiet() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

// Levels grow with what they allow, in the order of the standard.
void initialise() {
  int begun = 0;
  MPI_Initialized(&begun);
  int provided = MPI_THREAD_SINGLE;
  if (begun == 0) {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    check_thread_level(MPI_THREAD_FUNNELED, provided);
    return;
  }
  MPI_Query_thread(&provided);
  check_thread_level(MPI_THREAD_MULTIPLE, provided);
  throw ConfigError(
      "MPI is already initialised by this program",
      "let Lockstep initialise MPI: one process group a process, before other MPI calls");
}

}  // namespace

void check_thread_level(int required, int provided) {
  if (provided >= required) return;
  throw ConfigError(
      std::string("MPI thread support: required ") + level_name(required) + ", provided " +
          level_name(provided),
      "initialise MPI with MPI_Init_thread and the required level, or let Lockstep do it");
}

MpiProcess::MpiProcess(const LaunchPlace& place, Wait& wait)
    : state_(std::make_shared<MpiState>()), rank_(place.rank) {
  keep_broken_pipes_quiet();
  initialise();
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  check_mpi_size(place, size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &state_->communicator, &request), "MPI_Comm_idup", wait);
  for (int done = 0;;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test", wait);
    if (done != 0) break;
    wait.step();
  }
  MPI_Comm_set_errhandler(state_->communicator, MPI_ERRORS_RETURN);
}

std::unique_ptr<MpiBackend> MpiProcess::group(const std::vector<int>& ranks, Lane lane) {
  const int tag = state_->next_tag++;
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) return nullptr;
  return std::make_unique<MpiBackend>(state_, ranks, static_cast<int>(found - ranks.begin()), tag,
                                      lane);
}

bool MpiProcess::finalize() noexcept {
  if (state_->broken) return false;
  state_->broken = true;  // no call may follow
  MPI_Comm_free(&state_->communicator);
  return MPI_Finalize() == MPI_SUCCESS;
}

std::vector<std::string> MpiExchange::all_gather(std::string mine) {
  const auto size = static_cast<std::size_t>(backend_.size());
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(size);
  run_to_end(
      backend_.all_gather(reinterpret_cast<const std::byte*>(&length),
                          reinterpret_cast<std::byte*>(lengths.data()), sizeof length, wait_),
      wait_);
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  mine.resize(longest);
  std::string all(longest * size, '\0');
  run_to_end(backend_.all_gather(reinterpret_cast<const std::byte*>(mine.data()),
                                 reinterpret_cast<std::byte*>(all.data()), longest, wait_),
             wait_);
  std::vector<std::string> texts(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    texts[rank] = all.substr(rank * longest, lengths[rank]);
  }
  return texts;
}

}  // namespace lockstep
