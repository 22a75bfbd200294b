// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/decay.h"

#include <algorithm>

namespace lockstep::optim {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

}  // namespace

bool matches_glob(std::string_view pattern, std::string_view name) noexcept {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;  // the last one seen
  std::size_t after_star = 0;                 // where the text behind it begins, as tried now
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      // Only the last star needs another try: what stands before it matched as early as it could.
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

NoDecay::NoDecay(std::string_view patterns) {
  while (!patterns.empty()) {
    const std::size_t comma = patterns.find(',');
    const std::string_view pattern = trimmed(patterns.substr(0, comma));
    if (!pattern.empty()) patterns_.emplace_back(pattern);
    if (comma == std::string_view::npos) break;
    patterns.remove_prefix(comma + 1);
  }
}

bool NoDecay::matches(std::string_view name) const noexcept {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const std::string& pattern) { return matches_glob(pattern, name); });
}

}  // namespace lockstep::optim
