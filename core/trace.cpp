// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/trace.h"

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"

namespace lockstep {

std::int64_t steady_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Trace::add(std::string name, std::string lane, std::int64_t begin_ns, std::int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  spans_.push_back({std::move(name), std::move(lane), begin_ns, end_ns});
}

void Trace::write(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, int> lanes;
  auto events = nlohmann::json::array();
  for (const Span& span : spans_) {
    const auto [lane, fresh] = lanes.try_emplace(span.lane, static_cast<int>(lanes.size()));
    if (fresh) {
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", rank_},
                        {"tid", lane->second},
                        {"args", {{"name", span.lane}}}});
    }
    events.push_back({{"ph", "X"},
                      {"name", span.name},
                      {"pid", rank_},
                      {"tid", lane->second},
                      {"ts", static_cast<double>(span.begin_ns) / 1e3},
                      {"dur", static_cast<double>(span.end_ns - span.begin_ns) / 1e3}});
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << nlohmann::json{{"traceEvents", events}}.dump() << '\n';
  file.flush();
  if (!file) throw StorageError("cannot write the trace " + path, "check the folder and its space");
}

}  // namespace lockstep
