// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/collectives/sum_plan.h"

namespace lockstep {

/// In which gradient arena each of a rank's leaves is written, and which arenas are added when it
/// is there, so that at the end the arenas in `parts` hold the rank's canonical cover.
struct LeafSchedule {
  struct Leaf {
    int arena = 0;
    bool add = false;                  // the leaf adds to what is in the arena; else it overwrites
    std::vector<SumPlan::Add> merges;  // arena[into] += arena[from], in this order, afterwards
  };
  std::vector<Leaf> leaves;  // the rank's own, in order
  std::vector<int> parts;    // the arenas that hold the rank's parts, left to right; parts[0] is 0
  int arenas = 1;            // numbered from 0
};

/// Everything is accumulated in one arena.
LeafSchedule accumulate_schedule(LeafRange range);

/// Nodes of the reduction tree are formed as soon as both halves are there.
LeafSchedule tree_schedule(LeafRange range, std::int64_t leaves);

}  // namespace lockstep
