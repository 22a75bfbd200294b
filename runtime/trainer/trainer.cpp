// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/trainer.h"

#include <algorithm>
#include <utility>

#include "collectives/abort_signal.h"
#include "core/kernels.h"
#include "lockstep/collectives/agree.h"
#include "lockstep/runtime/checkpoint_tools.h"
#include "runtime/trainer/device_wait.h"
#include "runtime/trainer/evaluation.h"
#include "runtime/trainer/replicas.h"
#include "runtime/trainer/trainer_state.h"

namespace lockstep {
namespace {

double seconds_since(std::int64_t begin_ns) {
  return static_cast<double>(steady_ns() - begin_ns) / 1e9;
}

bool is_multiple(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

}  // namespace

Trainer::Trainer(ProcessGroup& group, TrainOptions options, const Config& config,
                 SignalWatch* signals)
    : state_(std::make_unique<State>(group, std::move(options), config, signals)) {}

Trainer::~Trainer() = default;

TrainEnd Trainer::run() {
  State& run = *state_;
  const std::int64_t last = run.options.steps;
  if (run.done == 0 && last == 0 && run.committed < 0) {
    run.save_last();
    return run.end(Outcome::finished, "step 0 is committed");
  }
  if (run.done >= last) return run.end(Outcome::finished, "all steps were done before");
  run.last_save_ns = steady_ns();
  if (run.options.checkpoint_every_auto) {
    run.auto_saves.emplace(run.options.checkpoint_mtbf, seconds_since(run.began_ns), run.moment());
  }
  while (run.done < last) {
    run.finishing = run.done + 1 == last;
    run.step();
    run.poll_saves();
    if (run.leaves_after_this_step()) {
      try {
        run.save_last();
      } catch (const Error& error) {
        if (run.finishing || !run.notice || !run.may_go_on_after(error)) throw;
        return run.end(Outcome::interrupted,
                       "asked to stop, but not saved, the last commit stands: " + describe(error));
      }
      if (run.finishing) break;
      return run.end(Outcome::saved, run.notice ? "asked to stop" : "pause_at is reached");
    }
    if (run.is_save_due()) run.save();
    run.choose_interval();
  }
  return run.end(Outcome::finished, "all steps are done");
}

void Trainer::State::step() {
  const std::int64_t began = steady_ns();
  const TraceSpan span(trace.get(), "step", "main");
  data_wait_s = 0.0;
  reducer->begin_step();
  const LeafRange mine = reducer->leaves();
  for (std::int64_t leaf = mine.begin; leaf < mine.end; ++leaf) {
    if (leaf + 1 == mine.end) tell_notice();
    forward_backward(leaf);
  }
  const StepTotals totals = reduce();
  for (const std::string& text : kernels::notes(compute)) note("NOTE " + text);
  for (const std::string& text : mesh->data().take_notes()) note("NOTE " + text);
  ++done;
  open_step = OpenStep{.record = {.attempt = attempt, .step = done, .data_wait_s = data_wait_s},
                       .totals = totals};
  queue_update();
  samples->advance();
  StepRecord& record = open_step->record;
  record.comm_exposed_s = reducer->exposed_seconds();
  record.step_seconds = seconds_since(began);
  record.tokens_per_s = static_cast<double>(totals.tokens) / record.step_seconds;
  record.checkpoint_stall_s = std::exchange(checkpoint_stall_s, 0.0);
  if (totals.non_finite) take_outcome();
  if (is_multiple(done, options.replica_check)) {
    finish_weights();
    check_replicas(mesh->data(), parameters, done);
  }
  eval_loss = evaluate_if_due();
  record.eval_loss = eval_loss;
  if (open_step->is_taken) close_step();
}

void Trainer::State::close_step() {
  if (!open_step) return;
  take_outcome();
  StepRecord record = std::exchange(open_step, std::nullopt)->record;
  if (!leads()) return;
  if (gpu) record.gpu = gpu->latest();
  progress->add(record);
  if (is_multiple(record.step, options.log_every) || record.eval_loss ||
      record.step == options.steps) {
    append_to_log(record);
  }
  progress->show(record);
}

void Trainer::State::append_to_log(const StepRecord& record) {
  log->append(record);
  if (log->is_behind() && !log_is_behind) {
    note("NOTE " + log->fault() + "; its lines are kept and written when that works again");
  }
  log_is_behind = log->is_behind();
}

void Trainer::State::tell_notice() {
  if (!signals || !signals->poll()) return;
  if (!notice) {
    std::fprintf(stderr, "rank %d: %s at step %ld: saving, then leaving\n", group.rank(),
                 signals->poll()->c_str(), done + 1);
  }
  reducer->set_flags({.notice = true});
}

void Trainer::State::forward_backward(std::int64_t leaf) {
  reducer->begin_leaf(leaf);
  if (!samples->has_samples(leaf)) {
    close_step();
    if (shards) shards->settle();  // no forward pass asks for the weights
    reducer->zero_leaf();
    return;
  }
  StagedBatch& slot = slots[next_slot];
  const StagedBatch& other = slots[1 - next_slot];
  next_slot = 1 - next_slot;
  wait_for_compute(mesh->data(), compute, slot.free,
                   "the batch before leaf " + std::to_string(leaf));
  // Reading is free while the device still works on the batch before.
  const bool idle = other.free.done();
  const std::int64_t began = steady_ns();
  samples->read_leaf(leaf, slot.host);
  if (idle) data_wait_s += seconds_since(began);

  const TraceSpan span(trace.get(), "leaf " + std::to_string(leaf), "main");
  slot.send(compute);
  const Tensor logits = model->forward(slot.device.tokens);
  close_step();  // the loss scale of this step depends on it
  const Tensor gradient =
      loss->forward_backward(logits, slot.device.targets, reducer->leaf_sums(), loss_scale());
  if (shards) shards->settle();
  model->backward(gradient);
  slot.free = compute.record();
}

StepTotals Trainer::State::reduce() {
  const TraceSpan span(trace.get(), "reduce", "main");
  const StepTotals totals = reducer->finish();
  notice = notice || totals.notice;
  return totals;
}

void Trainer::State::queue_update() {
  OpenStep& step = *open_step;
  if (step.totals.tokens == 0) {  // nothing changes
    step.record.loss = std::numeric_limits<double>::quiet_NaN();
    step.record.tokens = tokens;
    step.is_taken = true;
    files->set_progress(step.record.step, tokens);
    return;
  }
  const auto count = static_cast<double>(step.totals.tokens);
  step.record.loss = static_cast<float>(step.totals.loss / count);
  step.record.lr = schedule->at(optimizer->updates() + 1);
  if (scaler) step.record.loss_scale = loss_scale();
  step.divisor = count * static_cast<double>(loss_scale());
  norm->queue(compute, reducer->arena(),
              {.limit = options.clip, .divisor = step.divisor, .withhold = step.totals.non_finite});
  optimizer->step(compute, {.learning_rate = static_cast<float>(step.record.lr),
                            .scale = static_cast<float>(1.0 / step.divisor),
                            .gate = norm->gate()});
  step.queued = compute.record();
  if (shards) shards->gather_weights(compute, reducer->arena());
}

void Trainer::State::take_outcome() {
  if (!open_step || open_step->is_taken) return;
  OpenStep& step = *open_step;
  step.is_taken = true;
  wait_for_compute(mesh->data(), compute, step.queued,
                   "the update of step " + std::to_string(step.record.step));
  const optim::GradientNorm gradient = norm->result();
  step.record.grad_norm = gradient.of_sums / step.divisor;
  if (step.totals.non_finite || !gradient.finite()) {
    step.record.lr = 0.0;
    optimizer->set_updates(optimizer->updates() - 1);
    withhold(gradient);
  } else if (scaler) {
    scaler->good_step();
  }
  if (scaler) step.record.skipped = scaler->state().skipped;
  tokens += step.totals.tokens;
  step.record.tokens = tokens;
  last_loss = step.record.loss;
  files->set_progress(step.record.step, tokens);
}

void Trainer::State::withhold(const optim::GradientNorm& gradient) {
  const StepTotals& totals = open_step->totals;
  const std::string what =
      "step " + std::to_string(open_step->record.step) + ": " +
      (totals.non_finite ? "the loss of micro-batch " + std::to_string(totals.non_finite_leaf)
                         : "the gradient of " + gradient.non_finite_parameter) +
      " is not finite";
  same_on_all([&] {
    if (!scaler) {
      throw NumericError(what,
                         "the update was withheld and the last commit stands; lower optim.lr, or "
                         "look at the samples of this step");
    }
    try {
      scaler->overflow();
    } catch (const NumericError& error) {
      throw NumericError(what + ", and " + error.what(), error.hint());
    }
  });
}

void Trainer::State::finish_weights() {
  take_outcome();
  if (shards) shards->settle();
  wait_for_compute(mesh->data(), compute, compute.record(), "the device's work");
}

void Trainer::State::finish_step() {
  finish_weights();
  close_step();
}

std::optional<double> Trainer::State::evaluate_if_due() {
  const bool due = is_multiple(done, options.eval_every) || (finishing && options.eval_every > 0);
  if (!due) return std::nullopt;
  take_outcome();
  return evaluate(mesh->data(), compute, *model, *loss, corpus.held_back,
                  {.context = options.model.context,
                   .micro_batch = options.micro_batch,
                   .samples = options.eval_batches * options.global_batch});
}

TrainEnd Trainer::State::end(Outcome outcome, std::string reason) {
  finish_step();
  note_saves();
  TrainEnd end{.outcome = outcome,
               .reason = std::move(reason),
               .step = done,
               .weights_sha256 = weights_sha256(state, mesh->data())};
  agree(group.world(), "end the attempt", [&] {
    if (trace) trace->write(options.trace + "." + std::to_string(group.rank()));
    if (!leads()) return;
    log->flush();
    folder->write_result({.code = outcome,
                          .reason = end.reason,
                          .attempt = attempt,
                          .steps = done,
                          .tokens = tokens,
                          .loss = last_loss,
                          .weights_sha256 = end.weights_sha256,
                          .bits_broken_at_step = bits_broken_at});
  });
  return end;
}

}  // namespace lockstep
