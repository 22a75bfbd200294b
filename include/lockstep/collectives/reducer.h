// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/bucket_plan.h"
#include "lockstep/collectives/communicator.h"
#include "lockstep/collectives/sum_plan.h"
#include "lockstep/core/parameter.h"
#include "lockstep/core/stream.h"

namespace lockstep {

enum class Reduction : std::uint8_t {
  fast,       // the backend's own best
  ordered,    // in rank order, f32
  invariant,  // one tree over the leaves: the same bits on any number of ranks
};
const char* to_string(Reduction reduction) noexcept;

/// What to do about a parameter that is not marked ready in a leaf.
enum class Unused : std::uint8_t {
  error,  // finish() names it
  zero,   // its gradient in that leaf is zero; one that no rank marks in a step is not updated
};

struct ReducerOptions {
  Reduction reduction = Reduction::invariant;
  // f32, or bf16 with fast and ordered: what each rank gives and the sum, which is made in f32, are
  // rounded to it, and travel so between hosts. One rank alone rounds nothing. Fast is then
  // ordered.
  DType wire = DType::f32;
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  // `zero` costs a small all_reduce a step, and buckets with such a parameter go out at the end.
  Unused unused = Unused::error;
  // Each rank gets the sum of its share of each bucket (share_edges) alone, for ZeRO-1.
  bool scatter = false;
  bool overlap = true;  // false: every bucket is launched after the last backward, for comparison
};

/// Throws ConfigError for a wire type that the reduction does not have.
void check(const ReducerOptions& options);

/// What one leaf (micro-batch) adds to the step's sums; the loss writes it on the compute stream.
struct LeafSums {
  double loss = 0.0;  // sum over valid tokens, nats
  std::int64_t tokens = 0;
  std::int64_t non_finite = 0;
};

/// What a rank tells all others in a step, beside its leaves.
struct StepFlags {
  bool notice = false;  // this rank was asked to stop
  bool skip = false;    // this rank wants the update withheld
};

/// A step, added up over all ranks; the same on each.
struct StepTotals {
  double loss = 0.0;  // leaf sums added in leaf order, fp64
  std::int64_t tokens = 0;
  bool notice = false;
  bool skip = false;
  bool non_finite = false;
  std::int64_t non_finite_leaf = -1;  // the first one, by leaf number
};

/// Sums gradients over the leaves of the global batch, while backward still runs.
///
/// One step: begin_step(); for each own leaf begin_leaf(), forward, loss into leaf_sums(), backward
/// (parameters mark themselves ready) or zero_leaf(); then finish(). Gradients are *sums*; the
/// caller scales once by 1/tokens. Every call is made by the thread that runs the passes;
/// mark_ready may come from any. Collective: the constructor, and each step as a whole.
class GradientReducer {
 public:
  /// `leaves`: V of the global batch. Throws ConfigError if there are more ranks than leaves, or
  /// for a wire type that the reduction does not have.
  GradientReducer(Communicator& data, Stream& compute, Parameters parameters, std::int64_t leaves,
                  ReducerOptions options = {});
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  const BucketPlan& plan() const noexcept;
  LeafRange leaves() const noexcept;
  /// Gradient arenas that this rank holds, and nodes it sends (1 unless invariant).
  std::int64_t arenas() const noexcept;
  std::int64_t cover() const noexcept;

  void begin_step();
  /// Opens a backward pass for leaf `leaf`; leaves come in order.
  void begin_leaf(std::int64_t leaf);
  /// Where the loss of the open leaf is written, by work on the compute stream that is queued
  /// before the leaf's backward pass.
  LeafSums* leaf_sums() noexcept;
  /// The open leaf has no samples: its gradient is zero.
  void zero_leaf();
  /// Rides in the header of the open step, which is launched with bucket 0: to be called before the
  /// last own leaf begins.
  void set_flags(StepFlags flags);
  /// Ends the step: launches what is left; the compute stream waits for the reduced gradients, the
  /// host for the totals. Throws UsageError that names a parameter never marked ready in a leaf,
  /// unless that is allowed; the other ranks stay in this call until the caller has told them
  /// (ProcessGroup::abort). Where it is allowed, says of each parameter whether it was used.
  StepTotals finish();

  /// The reduced gradients of the last step as one flat arena [plan().arena_elements], f32; padding
  /// is zero. Also bound as each parameter's grad(). With `scatter`, outside this rank's shares it
  /// holds what this rank gave.
  const Tensor& arena() const noexcept;

  /// Seconds in which the compute stream waited for communication, in the last step.
  double exposed_seconds() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
