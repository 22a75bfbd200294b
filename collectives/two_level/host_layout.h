// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// How the ranks of a group lie on hosts.
struct HostLayout {
  std::vector<int> host_of_rank;                // by rank of the group; hosts count from 0
  std::vector<std::vector<int>> ranks_of_host;  // ranks of the job, in the group's order

  bool one_host() const noexcept { return ranks_of_host.size() == 1; }
  /// Several hosts with the same number of ranks, more than one.
  bool two_levels() const noexcept;
  /// The groups of ranks with the same place on their hosts, by place.
  std::vector<std::vector<int>> across() const;
};

/// `ranks`: of the job, in the group's order; `key_of_host`: by rank of the job.
HostLayout host_layout(const std::vector<int>& ranks, const std::vector<std::string>& key_of_host);

}  // namespace lockstep
