// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/nccl_faults.h"

#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "tests/fakes/cuda/machine.h"

namespace lockstep::fake {
namespace {

constexpr int kAnyRank = -1;

struct Fault {
  std::string kind;
  long at = 0;      // operation
  int version = 0;  // code
  int rank = kAnyRank;
};

Fault read_fault(std::string text) {
  const std::string whole = text;
  Fault fault;
  if (const std::size_t colon = text.find(":rank"); colon != std::string::npos) {
    fault.rank = std::atoi(text.c_str() + colon + 5);
    text.resize(colon);
  }
  const std::size_t end = text.find_first_of("@=");
  fault.kind = text.substr(0, end);
  const std::string value = end == std::string::npos ? "" : text.substr(end + 1);
  const bool operation = fault.kind == "remote_error" || fault.kind == "stuck";
  if (operation) fault.at = std::atol(value.c_str());
  int major = 0;
  int minor = 0;
  int patch = 0;
  if (fault.kind == "version" &&
      std::sscanf(value.c_str(), "%d.%d.%d", &major, &minor, &patch) == 3) {
    fault.version = NCCL_VERSION(major, minor, patch);
  }
  const bool plain = fault.kind == "init_never" || fault.kind == "no_registration";
  if (!(operation && fault.at > 0) && fault.version == 0 && !plain) {
    die("LOCKSTEP_FAKE_NCCL: \"" + whole + "\" is unknown");
  }
  return fault;
}

int world_rank() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? kAnyRank : std::atoi(rank);
}

struct Faults {
  std::mutex mutex;
  std::vector<Fault> list;
  std::map<int, long> operations;  // by rank
};
Faults& faults() {
  static Faults& instance = []() -> Faults& {
    auto& made = *new Faults;  // never destroyed: workers may still run while the process ends
    const char* text = std::getenv("LOCKSTEP_FAKE_NCCL");
    std::istringstream parts(text == nullptr ? "" : text);
    for (std::string part; std::getline(parts, part, ',');) made.list.push_back(read_fault(part));
    return made;
  }();
  return instance;
}

int rank_of_process(int rank_of_communicator) {
  static const int world = world_rank();
  return world == kAnyRank ? rank_of_communicator : world;
}

bool is_for(const Fault& fault, int rank) { return fault.rank == kAnyRank || fault.rank == rank; }

}  // namespace

void set_nccl_faults(const std::string& list) {
  const std::lock_guard lock(faults().mutex);
  faults().list.clear();
  faults().operations.clear();
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    faults().list.push_back(read_fault(part));
  }
}

OperationFault next_operation(int rank_of_communicator) {
  const int rank = rank_of_process(rank_of_communicator);
  const std::lock_guard lock(faults().mutex);
  const long number = ++faults().operations[rank];
  for (const Fault& fault : faults().list) {
    if (fault.at != number || !is_for(fault, rank)) continue;
    return fault.kind == "stuck" ? OperationFault::stuck : OperationFault::remote_error;
  }
  return OperationFault::none;
}

bool init_never_ends(int rank_of_communicator) {
  const int rank = rank_of_process(rank_of_communicator);
  const std::lock_guard lock(faults().mutex);
  for (const Fault& fault : faults().list) {
    if (fault.kind == "init_never" && is_for(fault, rank)) return true;
  }
  return false;
}

bool registration_fails() {
  const std::lock_guard lock(faults().mutex);
  return std::any_of(faults().list.begin(), faults().list.end(),
                     [](const Fault& fault) { return fault.kind == "no_registration"; });
}

int pretended_version() {
  const int rank = rank_of_process(kAnyRank);
  const std::lock_guard lock(faults().mutex);
  for (const Fault& fault : faults().list) {
    if (fault.version != 0 && is_for(fault, rank)) return fault.version;
  }
  return 0;
}

}  // namespace lockstep::fake
