// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "collectives/task.h"
#include "collectives/wait.h"
#include "lockstep/collectives/communicator.h"

namespace lockstep {

/// Throws CommError with MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call, const Wait& wait);

/// What all groups of a process share: one communicator of ours and whether it still works. Used on
/// the communication thread.
struct MpiState {
  MPI_Comm communicator = MPI_COMM_NULL;
  int next_tag = 0;  // one a group; splits are collective, so that all ranks count alike
  /// After a failure requests are left in flight into memory that may be gone: no MPI call may
  /// follow.
  bool broken = false;
  std::array<int, 3> under_way{};  // groups with transfers under way, by lane
};

/// Point-to-point transfers of one group in segments of at most 1 MiB. Never blocks in MPI: a
/// thread inside MPI_Wait spins, and slows the compute thread on its core 3 to 4 times. While a
/// group of a lane before this one's has transfers under way, this one keeps one segment a peer and
/// direction in flight instead of a few, so that little lies before the other's in the network.
///
/// Transfers between two ranks match in the order in which both name them.
class MpiTransfers {
 public:
  /// `ranks`: this group's ranks as ranks of the communicator.
  MpiTransfers(std::shared_ptr<MpiState> state, const std::vector<int>& ranks, int tag, Lane lane);

  void send(int peer, const std::byte* data, std::size_t bytes);
  void receive(int peer, std::byte* data, std::size_t bytes);
  /// Until every transfer named so far is done.
  Task complete(Wait& wait);

  static constexpr std::size_t kSegmentBytes = std::size_t{1} << 20;
  static constexpr int kWindow = 4;  // segments in flight a peer and direction

 private:
  enum class Direction : std::uint8_t { out, in };
  struct Range {
    std::byte* data;
    std::size_t bytes;
  };
  struct Route {
    int rank;  // in the communicator
    Direction direction;
    std::deque<Range> waiting;
    int in_flight = 0;
  };

  void post(Route& route, std::size_t index, const Wait& wait);
  void post_all(const Wait& wait);
  int window() const noexcept;
  bool advance(Wait& wait);

  std::shared_ptr<MpiState> state_;
  int tag_;
  std::size_t lane_;
  std::vector<Route> routes_;            // out of and into each rank of the group
  std::vector<MPI_Request> requests_;    // in flight
  std::vector<std::size_t> request_of_;  // the route of each
  std::vector<int> finished_;
};

}  // namespace lockstep
