// SPDX-License-Identifier: Apache-2.0
#include "tools/words.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "lockstep/core/config.h"
#include "lockstep/core/error.h"

namespace lockstep::tools {
namespace {

template <typename T>
std::optional<T> parsed(const std::string& text) {
  T value = {};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Words::Words(std::string verb, const Arguments& words, const std::vector<std::string>& allowed,
             std::string usage)
    : verb_(std::move(verb)), usage_(std::move(usage)) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    if (!word.starts_with("--")) {
      if (!place_.empty()) {
        throw ConfigError(verb_ + ": \"" + word + "\" is one word too many", usage_);
      }
      place_ = word;
      continue;
    }
    std::optional<std::string> value;
    if (const std::size_t equals = word.find('='); equals != std::string::npos) {
      value = word.substr(equals + 1);
      word.resize(equals);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    }
    std::replace(word.begin() + 2, word.end(), '-', '_');
    const auto near = nearest(word, allowed);
    if (!near || *near != word) {
      throw ConfigError(verb_ + ": flag " + word + " is unknown",
                        near ? "did you mean " + *near + "?" : usage_);
    }
    if (!value) throw ConfigError(verb_ + ": " + word + " has no value", usage_);
    flags_[word] = *value;
  }
  if (place_.empty()) throw ConfigError(verb_ + ": no run is named", usage_);
}

const std::string* Words::find(const std::string& flag) const {
  const auto found = flags_.find(flag);
  return found == flags_.end() ? nullptr : &found->second;
}

const std::string& Words::text(const std::string& flag) const {
  if (const std::string* value = find(flag)) return *value;
  throw ConfigError(verb_ + ": " + flag + " is missing", usage_);
}

std::optional<std::uint64_t> Words::number(const std::string& flag) const {
  const std::string* text = find(flag);
  if (!text) return std::nullopt;
  const auto value = parsed<std::uint64_t>(*text);
  if (!value) {
    throw ConfigError(verb_ + ": " + flag + " " + *text + " is no number",
                      "give a whole number of at least 0");
  }
  return value;
}

std::optional<double> Words::real(const std::string& flag) const {
  const std::string* text = find(flag);
  if (!text) return std::nullopt;
  const auto value = parsed<double>(*text);
  if (!value) throw ConfigError(verb_ + ": " + flag + " " + *text + " is no number", "like 0.8");
  return value;
}

std::optional<bool> Words::boolean(const std::string& flag) const {
  const std::string* text = find(flag);
  if (!text) return std::nullopt;
  if (*text == "true") return true;
  if (*text == "false") return false;
  throw ConfigError(verb_ + ": " + flag + " " + *text + " is neither true nor false", usage_);
}

}  // namespace lockstep::tools
