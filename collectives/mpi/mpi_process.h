// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/exchange.h"
#include "collectives/mpi/mpi_backend.h"
#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// MPI of this process, from MPI_Init_thread to MPI_Finalize. Every call, the constructor included,
/// on the communication thread: with MPI_THREAD_FUNNELED that is the thread that initialised.
class MpiProcess {
 public:
  /// Throws ConfigError if MPI comes up with another size than the launcher promised, or with too
  /// little thread support.
  MpiProcess(const LaunchPlace& place, Wait& wait);

  /// The group of these ranks of the job, in this order; one that this process is not in only
  /// counts. Collective over the job: all ranks make their groups in the same order.
  std::unique_ptr<MpiBackend> group(const std::vector<int>& ranks, Lane lane);

  /// Whether MPI is finalised now; false after a failure, since MPI would wait for what is in
  /// flight.
  bool finalize() noexcept;

 private:
  std::shared_ptr<MpiState> state_;
  int rank_ = 0;
};

/// An exchange over a group's messages; `backend` and `wait` must outlive it.
class MpiExchange final : public Exchange {
 public:
  MpiExchange(MpiBackend& backend, Wait& wait) : backend_(backend), wait_(wait) {}
  std::vector<std::string> all_gather(std::string mine) override;

 private:
  MpiBackend& backend_;
  Wait& wait_;
};

/// Throws ConfigError that names both levels if MPI supports threads less than asked.
void check_thread_level(int required, int provided);

}  // namespace lockstep
