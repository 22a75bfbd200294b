// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/command.h"

namespace lockstep::tools {

/// The words of a verb: one place (a run folder or a store URI), and flags with values. `--top_k`
/// and `--top-k` are one flag.
class Words {
 public:
  /// Throws ConfigError for a flag that is not in `allowed` (like "--step"), a flag without value,
  /// a second place or none. `usage` is the hint.
  Words(std::string verb, const Arguments& words, const std::vector<std::string>& allowed,
        std::string usage);

  const std::string& place() const noexcept { return place_; }
  const std::string* find(const std::string& flag) const;
  /// Throws ConfigError if the flag is missing.
  const std::string& text(const std::string& flag) const;
  /// Nothing if the flag is missing; throws ConfigError if it is not of the type.
  std::optional<std::uint64_t> number(const std::string& flag) const;
  std::optional<double> real(const std::string& flag) const;
  std::optional<bool> boolean(const std::string& flag) const;

 private:
  std::string verb_;
  std::string usage_;
  std::string place_;
  std::map<std::string, std::string> flags_;
};

}  // namespace lockstep::tools
