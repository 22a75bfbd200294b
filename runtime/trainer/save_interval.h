// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

/// What saves and restarts take, in seconds.
struct SaveCosts {
  double blocking = 0.0;  // training waits for a save
  double durable = 0.0;   // from the copy of the state to its commit
  double restart = 0.0;   // from the start of an attempt to its first step
};

/// Seconds of training from one save to the next that lose least, with a failure of the job every
/// `mtbf` seconds on average: J. T. Daly, "A higher order estimate of the optimum checkpoint
/// interval for restart dumps" (2006). At least as long as a save takes until it is durable, and so
/// long that the log of checkpoints stays short, where that costs at most half a per cent.
double save_interval(const SaveCosts& costs, double mtbf);

/// The share of time that is lost with saves every `interval` seconds: to the saves, and at each
/// failure to the work since the newest commit and to the restart.
double expected_loss(const SaveCosts& costs, double interval, double mtbf);

}  // namespace lockstep
