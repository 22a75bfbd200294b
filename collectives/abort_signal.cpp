// SPDX-License-Identifier: Apache-2.0
#include "collectives/abort_signal.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace lockstep {
namespace {

CommError error_of(const AbortCause& why) {
  std::string what;
  if (why.origin_rank >= 0) what = "rank " + std::to_string(why.origin_rank) + ": ";
  what += why.kind.empty() ? why.what : why.kind + ": " + why.what;
  return {what, why.hint, why.outcome, why.origin_rank};
}

}  // namespace

int speaker_of(const AbortCause& cause) noexcept {
  if (cause.kind == kLostRank || cause.kind == kStoppedRank) return cause.origin_rank == 0 ? 1 : 0;
  return cause.origin_rank < 0 ? 0 : cause.origin_rank;
}

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
  if (raised()) throw error_of(cause().value_or(AbortCause{}));
}

void AbortSignal::watch(const Event& event) {
  {
    const std::lock_guard lock(mutex_);
    if (!released_) {
      if (watched_.size() >= prune_at_) {
        std::erase_if(watched_, [](const Event& each) { return each.done(); });
        prune_at_ = std::max<std::size_t>(64, 2 * watched_.size());
      }
      watched_.push_back(event);
      return;
    }
  }
  event.fail(std::make_exception_ptr(error_of(cause().value_or(AbortCause{}))));
}

void AbortSignal::release_waiters() {
  std::vector<Event> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (!cause_) return;
    released_ = true;
    waiting.swap(watched_);
  }
  const auto error = std::make_exception_ptr(error_of(cause().value_or(AbortCause{})));
  for (const Event& event : waiting) event.fail(error);
}

}  // namespace lockstep
