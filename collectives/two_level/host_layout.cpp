// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/host_layout.h"

#include <algorithm>
#include <cstddef>

namespace lockstep {

bool HostLayout::two_levels() const noexcept {
  const std::size_t each = ranks_of_host.front().size();
  return !one_host() && each > 1 &&
         std::all_of(ranks_of_host.begin(), ranks_of_host.end(),
                     [each](const auto& ranks) { return ranks.size() == each; });
}

std::vector<std::vector<int>> HostLayout::across() const {
  std::vector<std::vector<int>> groups(ranks_of_host.front().size());
  for (const std::vector<int>& ranks : ranks_of_host) {
    for (std::size_t place = 0; place < groups.size(); ++place) {
      groups[place].push_back(ranks[place]);
    }
  }
  return groups;
}

HostLayout host_layout(const std::vector<int>& ranks, const std::vector<std::string>& key_of_host) {
  HostLayout layout;
  std::vector<std::string> keys;  // by host
  for (const int rank : ranks) {
    const std::string& key = key_of_host[static_cast<std::size_t>(rank)];
    const auto found = std::find(keys.begin(), keys.end(), key);
    const auto host = static_cast<std::size_t>(found - keys.begin());
    if (found == keys.end()) {
      keys.push_back(key);
      layout.ranks_of_host.emplace_back();
    }
    layout.ranks_of_host[host].push_back(rank);
    layout.host_of_rank.push_back(static_cast<int>(host));
  }
  return layout;
}

}  // namespace lockstep
