// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/core/metrics.h"

namespace lockstep {

/// The numbers of a process about its checkpoints.
struct SaveMetrics {
  explicit SaveMetrics(Metrics& metrics)
      : commits(metrics.counter("lockstep_checkpoint_commits_total", "Saves that became commits.")),
        failures(metrics.counter("lockstep_checkpoint_failures_total", "Saves that failed.")),
        skips(metrics.counter("lockstep_checkpoint_skipped_total",
                              "Saves skipped because both slots were busy.")),
        bytes(metrics.counter("lockstep_checkpoint_bytes_total", "Bytes of committed shards.")),
        blocking(metrics.counter("lockstep_checkpoint_blocking_seconds_total",
                                 "Time in which training waited for a save.")),
        last_success(metrics.gauge("lockstep_checkpoint_last_success_timestamp_seconds",
                                   "Unix time at which the newest commit became known.")),
        age(metrics.gauge("lockstep_checkpoint_age_steps", "Steps since the newest commit.")) {}

  Counter& commits;
  Counter& failures;
  Counter& skips;
  Counter& bytes;
  Counter& blocking;
  Gauge& last_success;
  Gauge& age;
};

}  // namespace lockstep
