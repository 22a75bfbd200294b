// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>
#include <string>

#include "collectives/abort_signal.h"
#include "lockstep/collectives/agree.h"
#include "runtime/trainer/notice_watch.h"
#include "runtime/trainer/trainer_state.h"

namespace lockstep {
namespace {

/// Adds the time of a scope to what training has waited for saves.
class StallTimer {
 public:
  StallTimer(double& sum, Counter& counter)
      : sum_(sum), counter_(counter), began_ns_(steady_ns()) {}
  ~StallTimer() {
    const double seconds = static_cast<double>(steady_ns() - began_ns_) / 1e9;
    sum_ += seconds;
    counter_.add(seconds);
  }
  StallTimer(const StallTimer&) = delete;
  StallTimer& operator=(const StallTimer&) = delete;

 private:
  double& sum_;
  Counter& counter_;
  std::int64_t began_ns_;
};

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string plural(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

TrainState Trainer::State::scalars() const {
  const SampleCursor& cursor = samples->cursor();
  std::optional<ScalerState> scaling;
  if (scaler) {
    const optim::LossScaleState& now = scaler->state();
    scaling = {.scale = now.scale,
               .good_steps = static_cast<std::uint64_t>(now.good_steps),
               .skipped = static_cast<std::uint64_t>(now.skipped)};
  }
  return {.step = static_cast<std::uint64_t>(done),
          .tokens = static_cast<std::uint64_t>(tokens),
          .seed = options.seed,
          .data = {.fingerprint = corpus.fingerprint,
                   .seed = options.data_seed,
                   .epoch = static_cast<std::uint64_t>(cursor.epoch),
                   .position = static_cast<std::uint64_t>(cursor.position)},
          .schedule_total = static_cast<std::uint64_t>(schedule_total),
          .schedule_position = static_cast<std::uint64_t>(optimizer->updates()),
          .leaves = static_cast<std::uint64_t>(options.leaves()),
          .micro = static_cast<std::uint64_t>(options.micro_batch),
          .scaler = scaling,
          .model = nn::gpt2_config_json(options.model),
          .tokenizer = is_text_source(options.data_source) ? "bytes" : "tokens",
          .eval_loss = eval_loss,
          .options = told,
          .code = code};
}

bool Trainer::State::leaves_after_this_step() const {
  return finishing || notice || options.pause_at == done;
}

bool Trainer::State::is_save_due() {
  if (auto_saves) return checkpointer->saves_in_flight() == 0 && auto_saves->is_due(done);
  bool due = options.checkpoint_every > 0 && done % options.checkpoint_every == 0;
  if (options.checkpoint_every_seconds > 0.0) {
    // One clock decides, so that all ranks save the same step.
    const double since = static_cast<double>(steady_ns() - last_save_ns) / 1e9;
    due = any(group.world(), leads() && since >= options.checkpoint_every_seconds) || due;
  }
  if (due) last_save_ns = steady_ns();
  return due;
}

AutoSaves::Moment Trainer::State::moment() const {
  return {.step = done,
          .seconds = static_cast<double>(steady_ns()) / 1e9,
          .stalled = save_metrics.blocking.value()};
}

void Trainer::State::choose_interval() {
  if (!auto_saves || !auto_saves->is_under_way() || checkpointer->saves_in_flight() > 0) return;
  if (!auto_saves->ended(moment(), committed)) return;
  const std::string mine = leads() ? std::to_string(auto_saves->choose()) : std::string();
  auto_saves->set(std::stoll(broadcast_text(group.world(), mine, 0)), done);
  if (!leads()) return;
  if (const std::string news = auto_saves->news(); !news.empty()) note(news);
}

void Trainer::State::poll_saves() {
  if (checkpointer->saves_in_flight() > 0) {
    const StallTimer timer(checkpoint_stall_s, save_metrics.blocking);
    for (const SaveEnd& end : checkpointer->poll()) take(end);
  }
  save_metrics.age.set(static_cast<double>(done - std::max<std::int64_t>(committed, 0)));
}

void Trainer::State::save() {
  if (auto_saves) auto_saves->began(moment());
  if (!options.checkpoint_async) {
    save_now();
    return;
  }
  const TraceSpan span(trace.get(), "snapshot", "main");
  const StallTimer timer(checkpoint_stall_s, save_metrics.blocking);
  finish_step();
  try {
    if (checkpointer->begin_save(scalars(), state)) return;
  } catch (const Error& error) {
    if (!may_go_on_after(error)) throw;
    count_failure(done, error);
    return;
  }
  ++skipped_saves;
  save_metrics.skips.add(1);
  // The store is slower than checkpoint.every: said, but not at every step.
  if (std::has_single_bit(static_cast<std::uint64_t>(skipped_saves))) {
    note("NOTE the save of step " + std::to_string(done) + " was skipped, " +
         (checkpointer->saves_in_flight() == 1 ? "one is" : "two are") + " still being written (" +
         std::to_string(skipped_saves) + " skipped so far)");
  }
}

void Trainer::State::save_last() {
  std::optional<NoticeWatch> watch;
  if (notice && signals) watch.emplace(group, *signals);
  {
    const TraceSpan span(trace.get(), "drain saves", "main");
    const StallTimer timer(checkpoint_stall_s, save_metrics.blocking);
    for (const SaveEnd& end : checkpointer->drain()) take(end);
  }
  save_now();
}

void Trainer::State::save_now() {
  if (committed == done) return;
  const TraceSpan span(trace.get(), "save", "main");
  const StallTimer timer(checkpoint_stall_s, save_metrics.blocking);
  finish_step();
  try {
    SaveResult saved = checkpointer->save(scalars(), state);
    take({.step = static_cast<std::uint64_t>(done), .saved = std::move(saved), .failure = {}});
  } catch (const Error& error) {
    if (leaves_after_this_step() || !may_go_on_after(error)) throw;
    count_failure(done, error);
  }
}

void Trainer::State::take(const SaveEnd& end) {
  const auto step = static_cast<std::int64_t>(end.step);
  if (end.failure) {
    const SaveFailure& failure = *end.failure;
    const bool named = failure.what.starts_with("rank ");
    const CommError error(
        (named ? "" : "rank " + std::to_string(failure.rank) + ": ") + failure.what, failure.hint,
        failure.outcome, failure.rank);
    if (!may_go_on_after(error)) throw error;
    count_failure(step, error);
    return;
  }
  committed = std::max(committed, step);
  ++commits;
  failed_in_a_row = 0;
  save_metrics.commits.add(1);
  save_metrics.bytes.add(static_cast<double>(end.saved->commit.bytes));
  save_metrics.last_success.set(unix_seconds());
  for (const std::string& warning : end.saved->warnings) note("NOTE " + warning);
}

bool Trainer::State::may_go_on_after(const Error& error) const {
  // Fenced, misused or set up wrongly: the next save would fail too. Nor is there one without
  // peers. What has saved before was set up rightly: its disk is read-only now, its rights are
  // gone, and both may come back.
  const Outcome outcome = error.outcome();
  return (outcome == Outcome::failed_elsewhere || (outcome == Outcome::config && commits > 0)) &&
         !group.abort_signal()->raised();
}

void Trainer::State::count_failure(std::int64_t step, const Error& error) {
  ++failed_saves;
  ++failed_in_a_row;
  save_metrics.failures.add(1);
  // At the end of an attempt one more save comes, which must succeed.
  if (failed_in_a_row < options.checkpoint_max_failures || leaves_after_this_step()) {
    note("NOTE the save of step " + std::to_string(step) + " failed (" +
         std::to_string(failed_in_a_row) +
         " in a row, checkpoint.max_failures = " + std::to_string(options.checkpoint_max_failures) +
         "), training goes on, the last commit stands: " + describe(error));
    return;
  }
  checkpointer->check_unclaimed();
  same_on_all([&] {
    throw StorageError(plural(failed_in_a_row, "save") + " in a row failed, the last one of step " +
                           std::to_string(step) + ": " + error.what(),
                       error.hint() + " (checkpoint.max_failures = " +
                           std::to_string(options.checkpoint_max_failures) +
                           "; the last commit stands)");
  });
}

void Trainer::State::note_saves() {
  if (failed_saves + skipped_saves == 0) return;
  note("checkpoints: " + plural(commits, "commit") + ", " + plural(failed_saves, "failed save") +
       ", " + plural(skipped_saves, "skipped save"));
}

}  // namespace lockstep
