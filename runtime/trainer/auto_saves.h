// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/trainer/save_interval.h"

namespace lockstep {

/// Of the newest few samples the one in the middle: a hiccup of the store is no new cost.
class RecentMedian {
 public:
  void add(double sample);
  /// 0 without samples.
  double value() const;

 private:
  std::vector<double> samples_;  // the oldest first
};

/// When saves are due with `checkpoint.every = auto`. One save is under way at a time, and after
/// each the interval is chosen anew. Every rank is told the same in the same order; what is
/// measured here counts on rank 0, whose choice the others get by set().
class AutoSaves {
 public:
  /// Where training stands.
  struct Moment {
    std::int64_t step = 0;
    double seconds = 0.0;  // of a steady clock
    double stalled = 0.0;  // seconds that training has waited for saves so far
  };

  /// `restart`: seconds that this attempt has taken until now, its first step. The first save is
  /// due soon: what it costs is not known before.
  AutoSaves(double mtbf, double restart, const Moment& now);

  bool is_due(std::int64_t step) const noexcept { return step >= due_; }

  void began(const Moment& now);
  /// Whether a save has begun and not ended.
  bool is_under_way() const noexcept { return is_under_way_; }
  /// `committed`: the step of the newest commit. True if it is this save's, and the interval is to
  /// be chosen; else nothing is learnt, and the next save is due after the same interval.
  bool ended(const Moment& now, std::int64_t committed);

  /// Steps from one save to the next, by what is known here.
  std::int64_t choose() const;
  /// The interval for all ranks. `step`: the newest.
  void set(std::int64_t every, std::int64_t step);

  /// The interval and what it was made from, for the user. Empty where it is about what was told
  /// last.
  std::string news();

 private:
  double interval() const;
  SaveCosts costs() const;

  double mtbf_;
  double restart_;
  Moment mark_;   // since when steps are timed
  Moment begun_;  // where the save under way began
  RecentMedian blocking_;
  RecentMedian durable_;
  RecentMedian step_seconds_;
  std::int64_t every_;
  std::int64_t due_;
  std::int64_t told_ = 0;
  bool is_under_way_ = false;
};

}  // namespace lockstep
