// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/progress.h"

#include <cmath>
#include <cstdio>

#include "lockstep/core/trace.h"

namespace lockstep {
namespace {

constexpr double kTerminalSeconds = 0.2;
constexpr double kLogSeconds = 5.0;

int percent(double part, double whole) {
  return whole > 0.0 ? static_cast<int>(std::lround(100.0 * part / whole)) : 0;
}

}  // namespace

std::string short_duration(double seconds) {
  const auto whole = std::int64_t{std::lround(seconds)};
  char text[48];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
  } else if (whole >= 60) {
    std::snprintf(text, sizeof text, "%ldm%02lds", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lds", whole);
  }
  return text;
}

Progress::Progress(std::int64_t last_step, Style style) : last_step_(last_step), style_(style) {}

Progress::~Progress() {
  if (open_line_) std::puts("");
}

void Progress::add(const StepRecord& record) {
  if (shown_step_ < 0) shown_step_ = record.step - 1;
  sums_.seconds += record.step_seconds;
  sums_.data += record.data_wait_s;
  sums_.communication += record.comm_exposed_s;
  sums_.checkpoint += record.checkpoint_stall_s;
  sums_.tokens += record.tokens_per_s * record.step_seconds;
}

void Progress::show(const StepRecord& record) {
  const bool in_place = style_ == Style::in_place;
  const double now = static_cast<double>(steady_ns()) / 1e9;
  const bool due = now - last_shown_s_ >= (in_place ? kTerminalSeconds : kLogSeconds);
  if (!due && record.step != last_step_ && !record.eval_loss) return;
  const double all = sums_.seconds + sums_.checkpoint;
  const auto steps = static_cast<double>(record.step - shown_step_);
  const double to_go =
      steps > 0 ? all / steps * static_cast<double>(last_step_ - record.step) : 0.0;
  char text[256];
  std::snprintf(
      text, sizeof text,
      "step %ld/%ld  loss %.4f  %.0f tok/s  to go %s  lost: data %d%% comm %d%% ckpt %d%%",
      record.step, last_step_, record.loss, all > 0.0 ? sums_.tokens / all : 0.0,
      short_duration(to_go).c_str(), percent(sums_.data, all), percent(sums_.communication, all),
      percent(sums_.checkpoint, all));
  std::string line = text;
  if (record.eval_loss) {
    std::snprintf(text, sizeof text, "  eval %.4f", *record.eval_loss);
    line += text;
  }
  const bool keep = !in_place || record.eval_loss || record.step == last_step_;
  std::printf("%s%s%s", in_place ? "\r\033[K" : "", line.c_str(), keep ? "\n" : "");
  std::fflush(stdout);
  open_line_ = !keep;
  last_shown_s_ = now;
  shown_step_ = record.step;
  sums_ = {};
}

void Progress::note(const std::string& text) {
  if (open_line_) std::puts("");
  open_line_ = false;
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

}  // namespace lockstep
