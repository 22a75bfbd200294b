// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/prepared_sum.h"

#include <utility>

#include "collectives/shared_memory/sum_program.h"

namespace lockstep::shared_memory {

SharedMemoryBackend::PreparedSum::PreparedSum(SharedMemoryBackend& backend,
                                              std::shared_ptr<const SumPlan> plan, Shown shown,
                                              std::size_t count, std::uint64_t detail)
    : backend_(backend),
      plan_(std::move(plan)),
      shown_(std::move(shown)),
      sources_(shown_.parts.begin(), shown_.parts.end()),
      count_(count),
      slice_(backend.own_slice(count)),
      walk_(backend.walk_through(count)),
      detail_(detail) {}

void SharedMemoryBackend::PreparedSum::come() {
  descriptor_ = backend_.begin(CommOperation::reduce_parts, count_, DType::f32);
  descriptor_.detail = detail_;
  backend_.mailbox_.show(descriptor_);
  stage_ = Stage::came;
}

void SharedMemoryBackend::PreparedSum::tell_added() {
  backend_.mailbox_.show(descriptor_);
  stage_ = Stage::added;
}

bool SharedMemoryBackend::PreparedSum::begin() {
  come();
  if (!backend_.mailbox_.come_soon()) return false;
  run_sum(*plan_, sources_, shown_.outs, slice_.begin, slice_.end, walk_);
  tell_added();
  const bool all_added = backend_.mailbox_.come_soon();
  backend_.count_stored(slice_, shown_.outs.size());  // not before: it waits for all stores
  if (all_added) stage_ = Stage::away;
  return all_added;
}

Task SharedMemoryBackend::PreparedSum::finish(Wait& wait) {
  if (stage_ == Stage::away) come();
  if (stage_ == Stage::came) {
    co_await backend_.mailbox_.arrival(wait);
    co_await backend_.sum_slice(*plan_, shown_.parts, shown_.outs, slice_, count_, wait);
    tell_added();
  }
  co_await backend_.mailbox_.arrival(wait);
  stage_ = Stage::away;
}

}  // namespace lockstep::shared_memory
