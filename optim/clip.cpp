// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/clip.h"

#include <algorithm>
#include <cmath>

#include "core/copy.h"
#include "core/host_memory.h"
#include "core/kernels.h"
#include "lockstep/core/error.h"

namespace lockstep::optim {

struct GlobalNorm::State {
  State(Device device, std::int64_t blocks)
      : block_sums(host_tensor(device, {blocks}, DType::f64)),
        gate(std::static_pointer_cast<kernels::UpdateGate>(
            host_memory(device, sizeof(kernels::UpdateGate)))) {}
  std::span<double> sums() const noexcept {
    return {block_sums.as<double>(), static_cast<std::size_t>(block_sums.size())};
  }

  struct Place {
    std::string name;
    std::int64_t first_block;
    std::int64_t end_block;
  };
  std::vector<Place> places;  // in forward order
  Shards* shards;
  Tensor block_sums;
  Stream* stream = nullptr;  // of the work that writes here
  double sum = 0.0;
  std::shared_ptr<kernels::UpdateGate> gate;
};

GlobalNorm::GlobalNorm(const Parameters& parameters, const BucketPlan& plan, Shards* shards)
    : state_(std::make_unique<State>(device_of(parameters), blocks_of(plan.arena_elements))) {
  if (parameters.size() != plan.entries.size()) {
    throw UsageError("global norm: " + std::to_string(parameters.size()) +
                         " parameters with a plan of " + std::to_string(plan.entries.size()),
                     "pass the parameters that the plan was made of");
  }
  state_->shards = shards;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t first = plan.entries[i].offset / kBlockElements;
    state_->places.push_back({.name = parameters[i]->name(),
                              .first_block = first,
                              .end_block = first + blocks_of(plan.entries[i].size)});
  }
}

GlobalNorm::~GlobalNorm() {
  if (!state_->stream) return;
  // After an exception, work that writes here may still be queued. It is local work only.
  try {
    state_->stream->synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): who waits for the stream has seen it
  }
}

void GlobalNorm::queue(Stream& stream, const Tensor& arena, const ClipRule& rule) {
  State& state = *state_;
  if (blocks_of(arena.size()) != state.block_sums.size()) {
    throw UsageError("global norm: an arena of " + std::to_string(arena.size()) +
                         " elements with a plan of " + std::to_string(state.block_sums.size()) +
                         " blocks",
                     "pass the arena that the plan describes");
  }
  state.stream = &stream;
  const auto sum_blocks = [&](std::int64_t begin, std::int64_t end) {
    kernels::block_square_sums(stream, arena.rows(begin, end), kBlockElements,
                               state.block_sums.as<double>() + begin / kBlockElements);
  };
  if (state.shards) {
    for (const Shards::Share& share : state.shards->own()) sum_blocks(share.begin, share.end);
    state.shards->gather(stream, state.sums());
  } else {
    sum_blocks(0, arena.size());
  }
  stream.enqueue([&state, rule] {
    state.sum = 0.0;
    for (const double block : state.sums()) state.sum += block;
    const double norm = std::sqrt(state.sum) / rule.divisor;
    *state.gate = {.clip = clip_factor(norm, rule.limit),
                   .open = std::isfinite(state.sum) && !rule.withhold};
  });
}

const kernels::UpdateGate* GlobalNorm::gate() const noexcept { return state_->gate.get(); }

GradientNorm GlobalNorm::result() const {
  const State& state = *state_;
  GradientNorm result{.of_sums = std::sqrt(state.sum), .non_finite_parameter = {}};
  // A square of an f32 cannot overflow f64, so a sum is finite exactly if all elements are.
  if (std::isfinite(state.sum)) return result;
  for (const State::Place& place : state.places) {
    const double* begin = state.block_sums.as<double>() + place.first_block;
    const double* end = state.block_sums.as<double>() + place.end_block;
    if (std::any_of(begin, end, [](double block) { return !std::isfinite(block); })) {
      result.non_finite_parameter = place.name;
      return result;
    }
  }
  result.non_finite_parameter = "(padding of the arena)";
  return result;
}

GradientNorm GlobalNorm::measure(Stream& stream, const Tensor& arena) {
  queue(stream, arena, {});
  stream.synchronize();
  return result();
}

float clip_factor(double norm, double limit) noexcept {
  if (limit <= 0.0 || !std::isfinite(norm) || norm <= limit) return 1.0F;
  return static_cast<float>(limit / norm);
}

}  // namespace lockstep::optim
