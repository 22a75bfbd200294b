// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/communicator.h"
#include "lockstep/core/error.h"

namespace lockstep {

struct AbortCause;  // collectives/abort_signal.h

struct GroupOptions {
  std::string backend = "auto";  // "auto", "shm", "mpi", "nccl"; "local": one rank
  std::chrono::seconds init_timeout{120};
  std::chrono::seconds collective_timeout{300};
  std::chrono::seconds exit_timeout{30};
  /// A rank that has not been heard of for so long counts as stopped.
  std::chrono::milliseconds silence_timeout{6000};
};

/// Where a process stands in the job, as its launcher says.
struct LaunchPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  std::string launcher;               // "mpirun", "srun" or "none"
  std::vector<std::string> warnings;  // worth a line each on the terminal of rank 0
};

/// Reads OMPI_*, PMIX_* and SLURM_* variables, before any MPI call. Throws ConfigError where a
/// launcher promised more tasks than this process can see as one job: srun without --mpi=pmix,
/// torchrun.
LaunchPlace launch_place();

/// All ranks of a job: one process each, started by mpirun or srun, or alone without them.
///
/// Owns the communication thread (the only one that calls MPI), the control channel between the
/// processes (heartbeats, the cause of an abort, the exit rendezvous) and the world communicator.
class ProcessGroup {
 public:
  /// Collective over the job. Throws ConfigError for what launch_place() refuses, CommError if not
  /// all ranks arrive within init_timeout.
  static ProcessGroup init(GroupOptions options = {});
  ProcessGroup(ProcessGroup&&) noexcept;
  ProcessGroup& operator=(ProcessGroup&&) noexcept;
  ~ProcessGroup();  // frees; does not communicate and does not finalise MPI: see leave()

  int rank() const noexcept;
  int size() const noexcept;
  int local_rank() const noexcept;                         // among the ranks of this host
  const std::vector<std::string>& hosts() const noexcept;  // by rank
  const std::vector<int>& process_ids() const noexcept;    // by rank
  const std::string& launcher() const noexcept;
  /// What looks like a mistake in how the job was started; worth a line each.
  const std::vector<std::string>& warnings() const noexcept;
  Communicator& world() noexcept;

  /// Ranks of one `color` form a group, ordered by (key, rank), whose tensors lie on `device` of
  /// each rank, a GPU a rank. Collective. Throws ConfigError, on all ranks, where their devices are
  /// not of one kind, the backend moves nothing between such, or two ranks of a group are on one
  /// GPU.
  std::unique_ptr<Communicator> split(std::string name, int color, int key, Lane lane = Lane::data,
                                      Device device = {});

  /// Tells every rank to end with this cause: their waits throw within a fraction of a second. Any
  /// thread; does not wait.
  void abort(AbortCause cause) noexcept;
  /// Set once some rank has failed or called abort().
  std::shared_ptr<const AbortSignal> abort_signal() const noexcept;
  /// Called once from the control thread, at most 200 ms after the failure is known here: the place
  /// to write a cause file. Must be set before the first collective of the run.
  void on_abort(std::function<void(const AbortCause&)> callback);

  /// Whether a peer was found lost at most `window` ago: then SIGTERM is the launcher's teardown.
  bool lost_peer_within(std::chrono::milliseconds window) const noexcept;

  /// The exit rendezvous. Every rank calls it last, with its own outcome; returns when all that are
  /// alive have, or at exit_timeout. The answer is the same on all: the outcome of the abort if
  /// there was one, else the largest code. Finalises MPI if every rank is there. After it the
  /// process must end with this code by `std::_Exit` or a return from main.
  Outcome leave(Outcome mine) noexcept;

 private:
  struct State;
  explicit ProcessGroup(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// What groups between GPUs use, "2.28.9"; empty in a build without CUDA.
std::string nccl_version();

}  // namespace lockstep
