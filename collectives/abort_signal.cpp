// SPDX-License-Identifier: Apache-2.0
#include "collectives/abort_signal.h"

#include <utility>

namespace lockstep {

bool AbortSignal::raise(AbortCause cause) {
  const std::lock_guard lock(mutex_);
  if (cause_) return false;
  cause_ = std::move(cause);
  raised_.store(true, std::memory_order_release);
  return true;
}

std::optional<AbortCause> AbortSignal::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void AbortSignal::throw_if_raised() const {
  if (!raised()) return;
  const AbortCause why = cause().value_or(AbortCause{});
  std::string what;
  if (why.origin_rank >= 0) what = "rank " + std::to_string(why.origin_rank) + ": ";
  what += why.kind.empty() ? why.what : why.kind + ": " + why.what;
  throw CommError(what, why.hint, why.outcome, why.origin_rank);
}

}  // namespace lockstep
