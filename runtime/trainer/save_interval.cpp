// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/save_interval.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

// Records of the log are never deleted.
constexpr double kShortestSeconds = 10.0;
// Half of the interval is lost at a failure.
constexpr double kShortestShareOfMtbf = 0.01;

}  // namespace

double save_interval(const SaveCosts& costs, double mtbf) {
  const double cost = std::max(costs.blocking, 0.0);
  double best = mtbf;
  if (cost < 2.0 * mtbf) {
    const double ratio = cost / (2.0 * mtbf);
    best = std::sqrt(2.0 * cost * mtbf) * (1.0 + std::sqrt(ratio) / 3.0 + ratio / 9.0) - cost;
  }
  const double shortest = std::min(kShortestSeconds, kShortestShareOfMtbf * mtbf);
  return std::max({best, shortest, costs.durable});
}

double expected_loss(const SaveCosts& costs, double interval, double mtbf) {
  return costs.blocking / interval + (interval / 2.0 + costs.durable + costs.restart) / mtbf;
}

}  // namespace lockstep
