// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace lockstep {

/// A number that only grows. Any thread.
class Counter {
 public:
  void add(double amount) noexcept { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0.0};
};

/// A number as it is now. Any thread.
class Gauge {
 public:
  void set(double value) noexcept { value_.store(value, std::memory_order_relaxed); }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0.0};
};

/// The named numbers of one process. Any thread; counters and gauges live as long as the registry.
class Metrics {
 public:
  /// The same name gives the same object. Throws UsageError if it is of the other kind.
  Counter& counter(const std::string& name, const std::string& help);
  Gauge& gauge(const std::string& name, const std::string& help);
  /// All of them in the Prometheus text format, in byte order of names.
  std::string text() const;

 private:
  struct Entry {
    std::string help;
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
  };
  Entry& entry(const std::string& name, const std::string& help);

  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace lockstep
