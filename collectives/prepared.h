// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/task.h"
#include "collectives/wait.h"

namespace lockstep {

/// A reduction that the ranks have agreed on once and carry out again and again: what a backend
/// makes of Communicator::prepare_reduce_parts. Carried out by one thread at a time, as everything
/// of its backend.
class Prepared {
 public:
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  virtual ~Prepared() = default;  // frees; never communicates

  /// Begins, and goes as far as it gets without waiting for more than some µs. Whether it is done;
  /// if not, finish() must follow.
  virtual bool begin() = 0;
  /// The rest of what begin() has left, or all of it where begin() was not called.
  virtual Task finish(Wait& wait) = 0;
};

}  // namespace lockstep
