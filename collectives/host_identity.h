// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Where a process runs, as the ranks of a job tell each other.
struct HostIdentity {
  std::string name;  // the host's own name, for people
  std::string key;   // equal for processes that can share memory and loopback
  int process_id = 0;
};

HostIdentity host_identity();

}  // namespace lockstep
