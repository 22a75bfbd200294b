// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/mesh.h"
#include "lockstep/core/metrics.h"
#include "lockstep/core/trace.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/optim/shards.h"
#include "lockstep/runtime/checkpoint.h"
#include "lockstep/runtime/corpus.h"
#include "lockstep/runtime/gpt2.h"
#include "lockstep/runtime/loss.h"
#include "lockstep/runtime/run_folder.h"
#include "lockstep/runtime/samples.h"
#include "lockstep/runtime/trainer.h"
#include "runtime/trainer/attempt_files.h"
#include "runtime/trainer/auto_saves.h"
#include "runtime/trainer/gpu_monitor.h"
#include "runtime/trainer/metrics_log.h"
#include "runtime/trainer/progress.h"
#include "runtime/trainer/save_metrics.h"
#include "runtime/trainer/staged_batch.h"

namespace lockstep {

/// A step whose update is queued. What the host learns late, it learns from the norm.
struct OpenStep {
  StepRecord record;
  StepTotals totals;
  double divisor = 1.0;  // of gradient sums: tokens, times the loss scale
  Event queued = {};     // behind the update
  bool is_taken = false;
};

/// All parts of a run, in the order in which they are made.
struct Trainer::State {
  State(ProcessGroup& job, TrainOptions chosen, const Config& config, SignalWatch* watch);

  bool leads() const noexcept { return group.rank() == 0; }
  void note(const std::string& text);
  /// Runs what does the same on every rank, and throws the same: all but rank 0 then point to rank
  /// 0, so that one rank speaks.
  template <typename Body>
  void same_on_all(const Body& body);

  // Setting up (trainer_setup.cpp).
  void compare_options(const Config& config);
  void open_folder();
  void read_data();
  void build_model();
  void open_checkpoints();
  void begin_attempt();
  void load_or_start();
  void check_resumed(const TrainState& saved);
  void tell_changes(const TrainState& saved);

  // Training (trainer.cpp).
  void step();
  void append_to_log(const StepRecord& record);
  void tell_notice();
  void forward_backward(std::int64_t leaf);
  StepTotals reduce();
  /// Queues norm, clip and update; the device decides whether the update is made.
  void queue_update();
  /// Waits for the open step's update and learns what became of it: norm, tokens, loss scale.
  /// Throws where it was withheld and training cannot go on (81).
  void take_outcome();
  /// The update was withheld: with fp16 the scale falls and training goes on, else it ends.
  void withhold(const optim::GradientNorm& gradient);
  /// take_outcome(), and a line in log and progress. Nothing without an open step. In the middle of
  /// the next step, while its first forward pass runs, unless somebody needs it sooner.
  void close_step();
  /// What the loss's gradient is multiplied by.
  float loss_scale() const noexcept { return scaler ? scaler->scale() : 1.0F; }
  /// Until the host may read all weights: with zero = 1 some are on their way after an update.
  void finish_weights();
  /// finish_weights(), then close_step(): before a save and at the end.
  void finish_step();
  std::optional<double> evaluate_if_due();
  TrainEnd end(Outcome outcome, std::string reason);

  // Saving (trainer_saves.cpp); all collective.
  TrainState scalars() const;
  bool leaves_after_this_step() const;
  bool is_save_due();
  /// Takes note of the background saves that have ended; once a step.
  void poll_saves();
  /// Where training stands, for auto_saves.
  AutoSaves::Moment moment() const;
  /// With checkpoint.every = auto: after a save has ended, the interval that rank 0 chooses.
  void choose_interval();
  /// Begins a save of this step, or makes it if checkpoint.async is off.
  void save();
  /// The last thing before this attempt leaves: throws if this step does not become a commit.
  void save_last();
  void save_now();
  void take(const SaveEnd& end);
  bool may_go_on_after(const Error& error) const;
  /// Throws when checkpoint.max_failures is reached.
  void count_failure(std::int64_t step, const Error& error);
  void note_saves();

  std::int64_t began_ns = steady_ns();  // of this attempt; first, so that all that follows counts
  ProcessGroup& group;
  TrainOptions options;
  SignalWatch* signals;
  std::map<std::string, std::string> code;  // what bits depend on
  std::map<std::string, std::string> told;  // keys_to_tell()

  std::shared_ptr<RunFolder> folder;
  std::shared_ptr<AttemptFiles> files = std::make_shared<AttemptFiles>();
  Corpus corpus;
  std::unique_ptr<Mesh> mesh;
  Stream compute;
  std::unique_ptr<nn::Gpt2> model;
  std::unique_ptr<nn::CrossEntropy> loss;
  Parameters parameters;
  std::unique_ptr<GradientReducer> reducer;
  std::unique_ptr<optim::Shards> shards;  // with zero = 1
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::LossScaler> scaler;  // with fp16
  std::unique_ptr<optim::GlobalNorm> norm;
  std::unique_ptr<optim::Schedule> schedule;
  std::int64_t schedule_total = 0;
  StateDict state;
  std::unique_ptr<SampleSequence> samples;
  std::vector<StagedBatch> slots;  // two: one is written while the other is read
  std::size_t next_slot = 0;
  std::unique_ptr<ObjectStore> store;
  std::unique_ptr<Checkpointer> checkpointer;
  std::unique_ptr<MetricsLog> log;     // on rank 0
  std::unique_ptr<Progress> progress;  // on rank 0
  std::shared_ptr<Trace> trace;

  std::int64_t attempt = 0;
  std::int64_t done = 0;        // steps
  std::int64_t tokens = 0;      // cumulative
  std::int64_t committed = -1;  // the step of the newest commit
  std::int64_t commits = 0;     // of this attempt
  std::int64_t failed_saves = 0;
  std::int64_t failed_in_a_row = 0;
  std::int64_t skipped_saves = 0;
  std::int64_t last_save_ns = 0;        // steady clock; on rank 0 it decides
  std::optional<AutoSaves> auto_saves;  // with checkpoint.every = auto, in training
  Metrics metrics;
  SaveMetrics save_metrics{metrics};
  std::unique_ptr<GpuMonitor> gpu;  // on a cuda device
  bool log_is_behind = false;       // lines of metrics.jsonl wait for space on the disk
  bool notice = false;              // some rank was asked to stop
  bool finishing = false;           // the last step of the run is being done
  std::optional<OpenStep> open_step;
  std::optional<double> last_loss;
  std::optional<double> eval_loss;  // of the weights as they are now, if evaluated
  std::optional<std::int64_t> bits_broken_at;
  double data_wait_s = 0.0;         // in this step
  double checkpoint_stall_s = 0.0;  // since the last line
};

template <typename Body>
void Trainer::State::same_on_all(const Body& body) {
  try {
    body();
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    if (leads()) throw;
    throw CommError(error.what(), error.hint(), error.outcome(), 0);
  }
}

/// Those options that bits depend on and that may be changed at resume.
std::map<std::string, std::string> bit_options(const TrainOptions& options, int ranks);
/// What the bits of a run on `device` depend on, beside its options: CPU, GPU, instruction set,
/// versions, and with `precision` bf16 whose attention it is.
std::map<std::string, std::string> machine_code(Device device, DType precision);

}  // namespace lockstep
