// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep::s3 {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20U;

/// What a store takes, and how much of it is used.
struct PartLimits {
  std::uint64_t least_bytes = 32 * kMebibyte;  // of a part but the last; stores refuse below 5 MiB
  std::uint64_t most_parts = 9000;             // stores refuse above 10,000
};

/// How an object is cut into the parts of a multipart upload.
struct PartPlan {
  std::uint64_t part_bytes = 0;  // of every part but the last; a multiple of a MiB where it grew
  std::uint64_t parts = 0;       // 1: a plain PUT does it, also for no bytes
  std::uint64_t last_bytes = 0;
};

PartPlan plan_parts(std::uint64_t size, const PartLimits& limits = {});

}  // namespace lockstep::s3
