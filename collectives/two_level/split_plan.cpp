// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/split_plan.h"

#include <algorithm>
#include <cstddef>

namespace lockstep {
namespace {

std::size_t to_size(int number) { return static_cast<std::size_t>(number); }

// Where a part of the whole plan comes from.
struct Origin {
  int host = 0;
  int number = 0;  // among the parts of that host
};

std::vector<Origin> origins(const SumPlan& plan, const std::vector<int>& host_of_rank, int hosts) {
  std::vector<Origin> parts;
  std::vector<int> so_far(to_size(hosts));
  for (std::size_t rank = 0; rank < plan.parts_of_rank.size(); ++rank) {
    const int host = host_of_rank[rank];
    for (int i = 0; i < plan.parts_of_rank[rank]; ++i) {
      parts.push_back({.host = host, .number = so_far[to_size(host)]++});
    }
  }
  return parts;
}

}  // namespace

SplitPlan split_plan(const SumPlan& plan, const std::vector<int>& host_of_rank, int host) {
  const int hosts = *std::max_element(host_of_rank.begin(), host_of_rank.end()) + 1;
  const std::vector<Origin> parts = origins(plan, host_of_rank, hosts);

  SplitPlan split;
  // A part that takes part in a sum of several hosts is theirs from then on.
  std::vector<bool> shared(parts.size());
  std::vector<SumPlan::Add> across;
  bool added = false;  // on some host
  for (const SumPlan::Add& add : plan.adds) {
    const Origin& into = parts[to_size(add.into)];
    const Origin& from = parts[to_size(add.from)];
    const bool met = shared[to_size(add.into)] || shared[to_size(add.from)];
    if (into.host == from.host && !met) {
      added = true;
      if (into.host == host) split.own_adds.push_back({.into = into.number, .from = from.number});
      continue;
    }
    across.push_back(add);
    shared[to_size(add.into)] = true;
    shared[to_size(add.from)] = true;
  }
  shared[to_size(plan.result)] = true;  // also where no other host adds to it

  // Numbers among what the hosts give, host by host.
  std::vector<int> number_across(parts.size());
  int next = 0;
  for (int each = 0; each < hosts; ++each) {
    const int first = next;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      if (parts[part].host != each || !shared[part]) continue;
      number_across[part] = next++;
      if (each == host) split.given.push_back(parts[part].number);
    }
    split.across.parts_of_rank.push_back(next - first);
  }
  for (const SumPlan::Add& add : across) {
    split.across.adds.push_back(
        {.into = number_across[to_size(add.into)], .from = number_across[to_size(add.from)]});
  }
  // Sums of a host have more digits than its parts.
  split.across.parts_type = added ? DType::f32 : plan.parts_type;
  split.across.sum_type = plan.sum_type;
  split.across.result = number_across[to_size(plan.result)];
  return split;
}

}  // namespace lockstep
