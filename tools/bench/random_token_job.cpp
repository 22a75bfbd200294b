// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/random_token_job.h"

#include <chrono>
#include <cmath>

#include "lockstep/core/copy.h"
#include "lockstep/core/rng.h"
#include "lockstep/runtime/checkpoint_tools.h"

namespace lockstep::tools {
namespace {

class Clock {
 public:
  /// Seconds since the last call.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

Batch random_batch(const TrainOptions& options, std::int64_t leaf) {
  Batch batch = make_batch(options.micro_batch, options.model.context);
  const auto vocabulary = static_cast<std::uint32_t>(options.model.vocab);
  for (std::int64_t i = 0; i < batch.tokens.size(); ++i) {
    const auto x =
        philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(leaf), 0, 0}, {1, 2});
    batch.tokens.as<std::int32_t>()[i] = static_cast<std::int32_t>(x[0] % vocabulary);
    batch.targets.as<std::int32_t>()[i] = static_cast<std::int32_t>(x[1] % vocabulary);
  }
  return batch;
}

Batch on_device(Stream& stream, const Batch& host) {
  if (stream.device().kind == DeviceKind::cpu) return host;
  const auto copy = [&](const Tensor& tensor) {
    Tensor twin(stream.device(), tensor.shape(), tensor.dtype());
    copy_now(tensor, twin);
    return twin;
  };
  return {.tokens = copy(host.tokens), .targets = copy(host.targets)};
}

}  // namespace

RandomTokenJob::RandomTokenJob(const TrainOptions& options)
    : options_(options),
      compute_(options.device),
      model_(compute_, options.model, options.precision),
      loss_(compute_) {
  // The same tokens in every step: what is learnt does not matter.
  for (std::int64_t leaf = 0; leaf < options.leaves(); ++leaf) {
    batches_.push_back(on_device(compute_, random_batch(options, leaf)));
  }
  model_.initialize(options.seed);
}

void RandomTokenJob::use(Communicator& data, const ReducerOptions& reducer, std::int64_t leaves) {
  release();  // a parameter has one reducer
  reducer_ =
      std::make_unique<GradientReducer>(data, compute_, model_.parameters(), leaves, reducer);
  const BucketPlan& plan = reducer_->plan();
  if (reducer.scatter) shards_ = std::make_unique<optim::Shards>(data, model_.parameters(), plan);
  norm_ = std::make_unique<optim::GlobalNorm>(model_.parameters(), plan, shards_.get());
  optimizer_ = std::make_unique<optim::AdamW>(
      shards_ ? shards_->slices() : optim::ParameterSlices(model_.parameters()), options_.moments);
}

void RandomTokenJob::finish_weights() {
  if (shards_) shards_->settle();
  compute_.synchronize();
}

std::string RandomTokenJob::weights() {
  finish_weights();
  StateDict state;
  model_.bind(state);
  return weights_sha256(state);
}

std::int64_t RandomTokenJob::optimizer_bytes() {
  StateDict state;
  optimizer_->bind(state);
  std::int64_t bytes = 0;
  for (const StateEntry& entry : state.entries()) {
    bytes += static_cast<std::int64_t>(entry.tensor.bytes());
  }
  return bytes;
}

StepTimes RandomTokenJob::step() {
  StepTimes times;
  Clock clock;
  reducer_->begin_step();
  for (std::int64_t leaf = reducer_->leaves().begin; leaf < reducer_->leaves().end; ++leaf) {
    const Batch& batch = batches_[static_cast<std::size_t>(leaf)];
    reducer_->begin_leaf(leaf);
    const Tensor logits = model_.forward(batch.tokens);
    const Tensor gradient = loss_.forward_backward(logits, batch.targets, reducer_->leaf_sums());
    if (shards_) shards_->settle();
    model_.backward(gradient);
  }
  compute_.synchronize();
  times.passes = clock.lap();
  const StepTotals totals = reducer_->finish();
  times.exposed = reducer_->exposed_seconds();
  times.reduce = clock.lap();
  const auto count = static_cast<double>(totals.tokens);
  const auto norm = norm_->measure(compute_, reducer_->arena());
  optimizer_->step(compute_, {.learning_rate = 1e-4F,
                              .scale = static_cast<float>(1.0 / count),
                              .clip = optim::clip_factor(norm.per_token(totals.tokens), 1.0)});
  if (shards_) shards_->gather_weights(compute_, reducer_->arena());
  compute_.synchronize();
  times.optimizer = clock.lap();
  loss_value_ = totals.loss / count;
  if (!std::isfinite(loss_value_) || !norm.finite()) {
    throw NumericError("the loss of a benchmark step is not finite",
                       "this is a fault of a kernel or a communicator: report it");
  }
  return times;
}

}  // namespace lockstep::tools
