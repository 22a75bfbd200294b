// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/collectives/sum_plan.h"

namespace lockstep {

/// A sum over ranks of several hosts, as two sums: what each host adds up of its own parts, and
/// what the hosts then add up together. The additions are those of the whole plan, so are the bits.
struct SplitPlan {
  /// Of one host, over its own parts: numbered rank by rank, its ranks in the group's order.
  std::vector<SumPlan::Add> own_adds;
  /// Those of its own parts that it then gives to `across`, in this order.
  std::vector<int> given;
  /// Over hosts in the place of ranks.
  SumPlan across;
};

/// `host_of_rank`: for each rank of the plan, the number of its host, from 0. The answer is for
/// `host`; `across` is the same for all.
SplitPlan split_plan(const SumPlan& plan, const std::vector<int>& host_of_rank, int host);

}  // namespace lockstep
