// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// How the ranks of a group tell each other short texts before they have a communicator: over MPI
/// or a socket.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Every rank's text, by rank in the group. Collective over the group; blocks. Throws CommError
  /// at its own deadline.
  virtual std::vector<std::string> all_gather(std::string mine) = 0;
};

}  // namespace lockstep
