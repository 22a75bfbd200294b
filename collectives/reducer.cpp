// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/reducer.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include "collectives/leaf_schedule.h"
#include "collectives/step_header.h"
#include "core/kernels.h"
#include "lockstep/collectives/prepared_reduction.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// Between two arenas of a rank, in elements: at equal offsets they would meet in the same cache
// sets. Whole cache lines, and different from the shift between ranks.
constexpr std::int64_t kArenaShift = 5136;
// For what a reducer that goes has still queued.
constexpr std::chrono::seconds kLastWork{10};

std::size_t to_size(std::int64_t count) { return static_cast<std::size_t>(count); }

BucketPlan plan_for(const Parameters& parameters, const ReducerOptions& options) {
  std::vector<std::int64_t> sizes;
  for (const Parameter* parameter : parameters) sizes.push_back(parameter->size());
  return plan_buckets(
      sizes, sizeof(float),
      {.first_bucket_bytes = options.first_bucket_bytes, .bucket_bytes = options.bucket_bytes});
}

LeafSchedule schedule_for(int rank, int ranks, std::int64_t leaves, Reduction reduction) {
  const LeafRange range = owned_leaves(rank, ranks, leaves);
  return reduction == Reduction::invariant ? tree_schedule(range, leaves)
                                           : accumulate_schedule(range);
}

SumPlan sum_plan_for(int ranks, std::int64_t leaves, const ReducerOptions& options) {
  SumPlan plan = options.reduction == Reduction::invariant ? invariant_plan(ranks, leaves)
                                                           : ordered_plan(ranks);
  if (ranks > 1) {
    plan.parts_type = options.wire;
    plan.sum_type = options.wire;
  }
  return plan;
}

std::int64_t checked_leaves(int ranks, std::int64_t leaves) {
  if (ranks <= leaves) return leaves;
  throw ConfigError(std::to_string(ranks) + " data-parallel ranks for " + std::to_string(leaves) +
                        " leaves (batch.global / batch.micro)",
                    "use at most as many ranks as leaves, or a smaller batch.micro");
}

}  // namespace

const char* to_string(Reduction reduction) noexcept {
  switch (reduction) {
    case Reduction::fast:
      return "fast";
    case Reduction::ordered:
      return "ordered";
    case Reduction::invariant:
      return "invariant";
  }
  return "?";
}

void check(const ReducerOptions& options) {
  if (options.wire == DType::f32) return;
  if (options.wire == DType::bf16 && options.reduction != Reduction::invariant) return;
  throw ConfigError(std::string("wire = ") + to_string(options.wire) +
                        " with reduction = " + to_string(options.reduction),
                    "a wire type of bf16 needs reduction = fast or ordered, since what is rounded "
                    "between ranks depends on their number");
}

struct GradientReducer::State {
  State(Communicator& data_group, Stream& compute_stream, Parameters borrowed,
        std::int64_t all_leaves, ReducerOptions chosen);

  void hook_parameters();
  void check_open_step(const char* call) const;
  void mark(std::size_t parameter, const Event& written);
  void open_leaf(std::int64_t number);
  void close_leaf();
  void fill_absent();
  void launch_used();
  void complete_bucket(std::size_t bucket);
  void launch_up_to(std::size_t end);
  double wait_for(const std::vector<Work>& reduced);
  Tensor in_bucket(int arena, std::size_t bucket) const;
  std::vector<Tensor> parts_of(std::size_t bucket) const;
  // Whether parts are rounded before they are sent.
  bool is_narrow() const noexcept { return sum_plan->parts_type != DType::f32; }
  // Whether a bucket is one all_reduce, in whatever order the backend adds.
  bool is_unordered() const noexcept {
    return options.reduction == Reduction::fast && !options.scatter && !is_narrow();
  }
  Tensor gradient(int arena, std::size_t parameter) const;
  const LeafSchedule::Leaf& schedule_of_open_leaf() const;
  void check_nothing_missing() const;
  std::string name_of(std::int64_t parameter) const;

  Communicator& data;
  Stream& compute;
  const Parameters parameters;
  const std::int64_t leaves;
  const ReducerOptions options;
  const BucketPlan plan;
  const LeafRange range;
  const LeafSchedule schedule;
  const std::shared_ptr<const SumPlan> sum_plan;
  std::vector<std::size_t> bucket_of;            // by parameter
  std::vector<std::vector<std::int64_t>> edges;  // of the ranks' shares, by bucket, for scatter
  std::vector<Tensor> arenas;                    // flat
  std::vector<PreparedReduction> sums;           // by bucket, where reduce_parts adds them up
  StepHeader header;
  double exposed_seconds = 0.0;

  std::mutex mutex;  // mark_ready comes from any thread
  bool step_open = false;
  std::int64_t next_leaf = 0;
  std::int64_t leaf = -1;                   // the open one; -1: none
  std::vector<bool> marked;                 // by parameter, in the open leaf
  std::vector<std::size_t> unmarked;        // by bucket, in the open leaf
  std::vector<std::vector<Event>> written;  // by bucket, in the open leaf
  Tensor used;                              // i64 by parameter: 1 if marked in a leaf of the step
  std::int64_t missing = -1;                // the first parameter of the step without a gradient
  std::int64_t missing_leaf = -1;           // in this leaf
  std::vector<Work> launched;               // by bucket, then that of `used`
  Event told;                               // the header of the step
};

GradientReducer::State::State(Communicator& data_group, Stream& compute_stream, Parameters borrowed,
                              std::int64_t all_leaves, ReducerOptions chosen)
    : data(data_group),
      compute(compute_stream),
      parameters(std::move(borrowed)),
      leaves(checked_leaves(data.size(), all_leaves)),
      options(chosen),
      plan(plan_for(parameters, options)),
      range(owned_leaves(data.rank(), data.size(), leaves)),
      schedule(schedule_for(data.rank(), data.size(), leaves, options.reduction)),
      sum_plan(std::make_shared<SumPlan>(sum_plan_for(data.size(), leaves, options))),
      bucket_of(parameters.size()),
      edges(share_edges(plan, data.size())),
      header(data.rank(), data.size(), leaves),
      marked(parameters.size()),
      unmarked(plan.buckets.size()),
      written(plan.buckets.size()),
      used(Tensor::zeros(Device{}, {static_cast<std::int64_t>(parameters.size())}, DType::i64)) {
  check(options);
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    for (const std::size_t member : plan.buckets[bucket].members) bucket_of[member] = bucket;
  }
  // Ranks need different numbers of arenas, but allocate the same.
  int most = 1;
  for (int rank = 0; rank < data.size(); ++rank) {
    most = std::max(most, schedule_for(rank, data.size(), leaves, options.reduction).arenas);
  }
  const std::int64_t stride = plan.arena_elements + kArenaShift;
  const Tensor memory = data.allocate(most * stride, DType::f32);
  for (std::int64_t arena = 0; arena < schedule.arenas; ++arena) {
    arenas.push_back(memory.rows(arena * stride, arena * stride + plan.arena_elements));
  }
  if (!options.scatter && !is_unordered()) {
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
      sums.push_back(data.prepare_reduce_parts(parts_of(bucket), in_bucket(0, bucket), sum_plan));
    }
  }
  hook_parameters();
}

void GradientReducer::State::hook_parameters() {
  std::size_t hooked = 0;
  try {
    for (; hooked < parameters.size(); ++hooked) {
      parameters[hooked]->on_ready(
          [this, parameter = hooked](const Event& event) { mark(parameter, event); });
    }
  } catch (...) {
    while (hooked-- > 0) parameters[hooked]->on_ready({});
    throw;
  }
}

void GradientReducer::State::check_open_step(const char* call) const {
  if (step_open) return;
  throw UsageError(std::string("GradientReducer::") + call + " outside a step",
                   "call begin_step() first and finish() last");
}

std::string GradientReducer::State::name_of(std::int64_t parameter) const {
  return parameters[to_size(parameter)]->name();
}

const LeafSchedule::Leaf& GradientReducer::State::schedule_of_open_leaf() const {
  return schedule.leaves[to_size(leaf - range.begin)];
}

Tensor GradientReducer::State::in_bucket(int arena, std::size_t bucket) const {
  const Bucket& where = plan.buckets[bucket];
  return arenas[to_size(arena)].rows(where.offset, where.offset + where.size);
}

std::vector<Tensor> GradientReducer::State::parts_of(std::size_t bucket) const {
  std::vector<Tensor> parts;
  for (const int arena : schedule.parts) parts.push_back(in_bucket(arena, bucket));
  return parts;
}

Tensor GradientReducer::State::gradient(int arena, std::size_t parameter) const {
  const ArenaEntry& where = plan.entries[parameter];
  return arenas[to_size(arena)]
      .rows(where.offset, where.offset + where.size)
      .reshape(parameters[parameter]->shape());
}

void GradientReducer::State::open_leaf(std::int64_t number) {
  leaf = number;
  const LeafSchedule::Leaf& where = schedule_of_open_leaf();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i]->begin_pass(gradient(where.arena, i), where.add);
  }
  marked.assign(marked.size(), false);
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    unmarked[bucket] = plan.buckets[bucket].members.size();
    written[bucket].clear();
  }
}

void GradientReducer::State::close_leaf() {
  if (leaf < 0) return;
  const auto absent = std::find(marked.begin(), marked.end(), false);
  if (absent != marked.end() && options.unused == Unused::zero) {
    fill_absent();
  } else if (absent != marked.end() && missing < 0) {
    missing = absent - marked.begin();
    missing_leaf = leaf;
  }
  leaf = -1;
}

void GradientReducer::State::fill_absent() {
  const LeafSchedule::Leaf& where = schedule_of_open_leaf();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (marked[i]) continue;
    if (!where.add) kernels::fill_zero(compute, gradient(where.arena, i));
    marked[i] = true;
    if (--unmarked[bucket_of[i]] == 0) complete_bucket(bucket_of[i]);
  }
}

// Behind the buckets: what a rank has used it knows at the end of its last leaf.
void GradientReducer::State::launch_used() {
  if (options.unused == Unused::zero)
    launched.push_back(data.host().all_reduce(used, ReduceOp::max));
}

void GradientReducer::State::mark(std::size_t parameter, const Event& event) {
  const std::lock_guard lock(mutex);
  const std::string& name = parameters[parameter]->name();
  if (leaf < 0) {
    throw UsageError("parameter " + name + " marked ready outside a leaf",
                     "call begin_leaf() before the backward pass");
  }
  if (marked[parameter]) {
    throw UsageError(
        "parameter " + name + " marked ready twice in leaf " + std::to_string(leaf),
        "mark a parameter once a pass, after its last contribution (a tied weight has several)");
  }
  marked[parameter] = true;
  used.as<std::int64_t>()[parameter] = 1;
  const std::size_t bucket = bucket_of[parameter];
  written[bucket].push_back(event);
  if (--unmarked[bucket] == 0) complete_bucket(bucket);
}

// Every gradient of the bucket is marked in the open leaf.
void GradientReducer::State::complete_bucket(std::size_t bucket) {
  for (const Event& event : written[bucket]) {
    if (!event.done()) compute.wait(event);
  }
  for (const SumPlan::Add& merge : schedule_of_open_leaf().merges) {
    kernels::add(compute, in_bucket(merge.from, bucket), in_bucket(merge.into, bucket));
  }
  if (leaf + 1 != range.end || !options.overlap) return;
  // In plan order, whatever the order of completion: all ranks must pair the same buckets.
  std::size_t end = launched.size();
  while (end < unmarked.size() && unmarked[end] == 0) ++end;
  launch_up_to(end);
}

void GradientReducer::State::launch_up_to(std::size_t end) {
  if (launched.empty() && end > 0) {
    told = data.host().all_gather(header.mine(), header.all(), compute.record()).event();
  }
  while (launched.size() < end) {
    const std::size_t bucket = launched.size();
    const Tensor sum = in_bucket(0, bucket);
    if (is_unordered()) {
      launched.push_back(data.all_reduce(sum, ReduceOp::sum, compute.record()));
      continue;
    }
    if (is_narrow()) {
      for (const Tensor& part : parts_of(bucket)) {
        kernels::round(compute, part, sum_plan->parts_type);
      }
    }
    const Event ready = compute.record();
    launched.push_back(
        options.scatter ? data.reduce_scatter(parts_of(bucket), sum, sum_plan, edges[bucket], ready)
                        : sums[bucket].start(ready));
  }
}

// Until header and buckets are here; the seconds in which the compute stream waited for them.
double GradientReducer::State::wait_for(const std::vector<Work>& reduced) {
  const auto wait_and_time = [](const std::vector<Work>& works) {
    const auto began = std::chrono::steady_clock::now();
    for (const Work& work : works) work.wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  if (compute.device().kind != DeviceKind::cpu) {
    // A task of the stream that waited would hold up all others of the device's driver, and with
    // them what says that a bucket is ready.
    data.wait_for(compute.record(), "the gradients of a step on " + to_string(compute.device()));
    const double exposed = wait_and_time(reduced);
    told.wait();
    return exposed;
  }
  auto exposed = std::make_shared<double>(0.0);
  compute.enqueue([reduced, exposed, wait_and_time] { *exposed = wait_and_time(reduced); });
  const Event waited = compute.record();
  told.wait();
  waited.wait();
  return *exposed;
}

void GradientReducer::State::check_nothing_missing() const {
  if (missing < 0) return;
  throw UsageError("parameter " + name_of(missing) + " got no gradient in leaf " +
                       std::to_string(missing_leaf) + " (never marked ready)",
                   "every parameter must take part in every forward and backward pass");
}

GradientReducer::GradientReducer(Communicator& data, Stream& compute, Parameters parameters,
                                 std::int64_t leaves, ReducerOptions options)
    : state_(std::make_unique<State>(data, compute, std::move(parameters), leaves, options)) {}

GradientReducer::~GradientReducer() {
  for (Parameter* parameter : state_->parameters) {
    parameter->on_ready({});
    parameter->set_used(true);
  }
  // After an exception, work that writes leaf sums may still be queued. It is local work only, but
  // a device may hang.
  try {
    static_cast<void>(state_->compute.record().wait_for(kLastWork));
  } catch (...) {  // NOLINT(bugprone-empty-catch): who waits for the stream has seen it
  }
}

const BucketPlan& GradientReducer::plan() const noexcept { return state_->plan; }
LeafRange GradientReducer::leaves() const noexcept { return state_->range; }
std::int64_t GradientReducer::arenas() const noexcept { return state_->schedule.arenas; }
std::int64_t GradientReducer::cover() const noexcept {
  return static_cast<std::int64_t>(state_->schedule.parts.size());
}
const Tensor& GradientReducer::arena() const noexcept { return state_->arenas.front(); }
double GradientReducer::exposed_seconds() const noexcept { return state_->exposed_seconds; }

void GradientReducer::begin_step() {
  const std::lock_guard lock(state_->mutex);
  if (state_->step_open) {
    throw UsageError("GradientReducer::begin_step inside a step", "call finish() first");
  }
  state_->step_open = true;
  state_->next_leaf = state_->range.begin;
  state_->missing = -1;
  state_->launched.clear();
  state_->header.clear();
  std::fill_n(state_->used.as<std::int64_t>(), state_->used.size(), 0);
}

void GradientReducer::begin_leaf(std::int64_t leaf) {
  const std::lock_guard lock(state_->mutex);
  state_->check_open_step("begin_leaf");
  if (leaf != state_->next_leaf || leaf >= state_->range.end) {
    throw UsageError("begin_leaf(" + std::to_string(leaf) + "): this rank owns leaves " +
                         std::to_string(state_->range.begin) + " to " +
                         std::to_string(state_->range.end - 1) + ", the next one is " +
                         std::to_string(state_->next_leaf),
                     "go through leaves() once a step, in order");
  }
  state_->close_leaf();
  state_->open_leaf(leaf);
  ++state_->next_leaf;
}

LeafSums* GradientReducer::leaf_sums() noexcept {
  return state_->leaf < 0 ? nullptr : state_->header.leaf_sums(state_->leaf);
}

void GradientReducer::zero_leaf() {
  const std::lock_guard lock(state_->mutex);
  state_->check_open_step("zero_leaf");
  const auto& marked = state_->marked;
  const auto given = std::find(marked.begin(), marked.end(), true);
  if (state_->leaf < 0 || given != marked.end()) {
    throw UsageError("GradientReducer::zero_leaf " +
                         (given != marked.end() && state_->leaf >= 0
                              ? "after " + state_->name_of(given - marked.begin()) + " was marked"
                              : std::string("outside a leaf")),
                     "call it after begin_leaf(), instead of a backward pass");
  }
  const LeafSchedule::Leaf& where = state_->schedule_of_open_leaf();
  state_->marked.assign(marked.size(), true);
  for (std::size_t bucket = 0; bucket < state_->unmarked.size(); ++bucket) {
    if (!where.add) kernels::fill_zero(state_->compute, state_->in_bucket(where.arena, bucket));
    state_->unmarked[bucket] = 0;
    state_->complete_bucket(bucket);
  }
}

void GradientReducer::set_flags(StepFlags flags) {
  const std::lock_guard lock(state_->mutex);
  state_->check_open_step("set_flags");
  if (state_->next_leaf == state_->range.end) {
    throw UsageError("GradientReducer::set_flags in the last leaf of the step",
                     "call it before begin_leaf() of the last leaf: the header may be on its way");
  }
  state_->header.set(flags);
}

StepTotals GradientReducer::finish() {
  State& state = *state_;
  std::vector<Work> reduced;
  {
    const std::lock_guard lock(state.mutex);
    state.check_open_step("finish");
    if (state.next_leaf != state.range.end) {
      throw UsageError(
          "GradientReducer::finish: leaf " + std::to_string(state.next_leaf) + " was not begun",
          "call begin_leaf() for all of leaves(); zero_leaf() if it has no samples");
    }
    state.close_leaf();
    state.step_open = false;
    state.check_nothing_missing();
    state.launch_up_to(state.plan.buckets.size());
    state.launch_used();
    reduced = state.launched;
  }
  state.exposed_seconds = state.wait_for(reduced);
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    state.parameters[i]->begin_pass(state.gradient(0, i), true);
    if (state.options.unused == Unused::zero) {
      state.parameters[i]->set_used(state.used.as<std::int64_t>()[i] != 0);
    }
  }
  return state.header.totals();
}

}  // namespace lockstep
