// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

/// Spans of time as a Chrome trace (chrome://tracing, Perfetto). Any thread.
class Trace {
 public:
  explicit Trace(int rank) : rank_(rank) {}
  /// `lane` is the row in the picture, e.g. "compute". Times are steady nanoseconds.
  void add(std::string name, std::string lane, std::int64_t begin_ns, std::int64_t end_ns);
  /// Writes all spans so far. Throws StorageError.
  void write(const std::string& path) const;

 private:
  struct Span {
    std::string name;
    std::string lane;
    std::int64_t begin_ns;
    std::int64_t end_ns;
  };
  int rank_;
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
};

/// Nanoseconds of the steady clock.
std::int64_t steady_ns() noexcept;

/// Adds a span from its construction to its end; does nothing with a null trace.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, std::string name, std::string lane)
      : trace_(trace), name_(std::move(name)), lane_(std::move(lane)), begin_ns_(steady_ns()) {}
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (trace_) trace_->add(std::move(name_), std::move(lane_), begin_ns_, steady_ns());
  }

 private:
  Trace* trace_;
  std::string name_;
  std::string lane_;
  std::int64_t begin_ns_;
};

}  // namespace lockstep
