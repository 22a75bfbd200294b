// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/shard_plan.h"

namespace lockstep {

/// Elements that are consecutive in a dataset and in the tensor that is filled from it.
struct CopyRun {
  std::uint64_t source = 0;  // element of the dataset
  std::uint64_t target = 0;  // element of the target box, row-major
  std::uint64_t length = 0;
  bool operator==(const CopyRun&) const = default;
};

/// What a dataset (a box or a flat run of one) holds of the box `target` of the same tensor, in
/// rising order of `source`. A pure function.
std::vector<CopyRun> copy_runs(const Fragment& fragment, const Box& target);

/// What is left of the runs of a box where only its elements `part` are wanted, from the first of
/// those on.
std::vector<CopyRun> clipped(std::vector<CopyRun> runs, FlatRun part);

/// Whether the runs of all datasets fill `elements` elements, each exactly once. Empty if so, else
/// what is wrong: a hole is never read as zeros.
std::string cover_fault(std::vector<CopyRun> runs, std::uint64_t elements);

}  // namespace lockstep
