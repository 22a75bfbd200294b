// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/core/stream.h"
#include "lockstep/runtime/samples.h"

namespace lockstep {

/// A batch that the host writes and a device reads; on the CPU one memory is both.
struct StagedBatch {
  StagedBatch(Device device, std::int64_t rows, std::int64_t context);

  /// Queues the copy of what the host wrote.
  void send(Stream& compute) const;

  Batch host;
  Batch device;
  Event free;  // behind the last work that reads it; set by who queues that
};

}  // namespace lockstep
