// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/metrics.h"

#include <cmath>
#include <cstdio>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string escaped_help(const std::string& help) {
  std::string text;
  for (const char c : help) {
    if (c == '\\') {
      text += "\\\\";
    } else if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

[[noreturn]] void refuse_kind(const std::string& name) {
  throw UsageError("metric " + name + " exists as another kind", "choose another name");
}

}  // namespace

Metrics::Entry& Metrics::entry(const std::string& name, const std::string& help) {
  Entry& found = entries_[name];
  if (found.help.empty()) found.help = help;
  return found;
}

Counter& Metrics::counter(const std::string& name, const std::string& help) {
  const std::lock_guard lock(mutex_);
  Entry& found = entry(name, help);
  if (found.gauge) refuse_kind(name);
  if (!found.counter) found.counter = std::make_unique<Counter>();
  return *found.counter;
}

Gauge& Metrics::gauge(const std::string& name, const std::string& help) {
  const std::lock_guard lock(mutex_);
  Entry& found = entry(name, help);
  if (found.counter) refuse_kind(name);
  if (!found.gauge) found.gauge = std::make_unique<Gauge>();
  return *found.gauge;
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string page;
  for (const auto& [name, entry] : entries_) {
    const bool counts = entry.counter != nullptr;
    page += "# HELP " + name + " " + escaped_help(entry.help) + "\n";
    page += "# TYPE " + name + (counts ? " counter\n" : " gauge\n");
    page += name + " " + number(counts ? entry.counter->value() : entry.gauge->value()) + "\n";
  }
  return page;
}

}  // namespace lockstep
