// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

enum class ConfigType : std::uint8_t { boolean, integer, unsigned_integer, real, text };

/// A key `a.b_c`: flag `--a.b_c` or `--a-b-c`, variable `LOCKSTEP_A_B_C`, TOML `[a] b_c`.
struct ConfigKey {
  std::string name;
  ConfigType type = ConfigType::text;
  std::string default_value = {};  // as text; empty where the program decides
  std::string help = {};
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  /// Of a text key: what it takes; empty: anything. Of an integer key: words in place of a number.
  std::vector<std::string> choices = {};
};

/// Options from flags over variables over a file over a preset over defaults.
///
/// Reading order does not matter. Every error is a ConfigError that names the source (flag,
/// variable, file and line), the value, and for an unknown key the nearest one.
class Config {
 public:
  /// `later`: names of keys that a later version has; they are refused with those words.
  explicit Config(std::vector<ConfigKey> keys, std::vector<std::string> later = {});

  /// Flags as `--key value` or `--key=value`, without the program's name.
  void read_arguments(const std::vector<std::string>& arguments);
  /// Variables that begin with LOCKSTEP_, except those in `reserved`. An entry that ends with '*'
  /// reserves all names that begin so.
  void read_environment(const std::map<std::string, std::string>& variables,
                        const std::vector<std::string>& reserved);
  /// A TOML file.
  void read_file(const std::string& path);
  /// Below every explicit source, above the defaults.
  void set_preset(const std::string& name, const std::string& key, const std::string& value);

  bool boolean(const std::string& key) const;
  /// The word that an integer key has in place of a number; empty if it has a number, which only
  /// then integer() gives.
  std::string word(const std::string& key) const;
  std::int64_t integer(const std::string& key) const;
  std::uint64_t unsigned_integer(const std::string& key) const;
  double real(const std::string& key) const;
  const std::string& text(const std::string& key) const;

  /// Whether a flag, a variable or the file gave the key.
  bool given(const std::string& key) const;
  /// "flag --steps", "variable LOCKSTEP_STEPS", "run.toml:3", "preset gpt2-tiny" or "default".
  std::string source(const std::string& key) const;
  /// Every key with its value, in byte order of the keys.
  std::vector<std::pair<std::string, std::string>> resolved() const;
  const std::vector<ConfigKey>& keys() const noexcept { return keys_; }

 private:
  enum class Level : std::uint8_t { preset, file, environment, arguments };
  struct Value {
    std::string text;
    std::string source;
  };
  const ConfigKey& key_of(const std::string& name) const;
  const ConfigKey* find(const std::string& name) const noexcept;
  void store(Level level, const std::string& key, std::string text, std::string source);
  const Value* value_of(const std::string& key) const noexcept;
  const std::string& text_of(const std::string& key, ConfigType type) const;
  [[noreturn]] void refuse_unknown(const std::string& what, const std::string& wanted,
                                   const std::function<std::string(const ConfigKey&)>& spell) const;

  std::vector<ConfigKey> keys_;
  std::vector<std::string> later_;
  std::map<std::string, std::map<Level, Value>> values_;
};

/// The candidate with the smallest edit distance (Levenshtein 1966) to `word`, if it is near enough
/// to be a slip.
std::optional<std::string> nearest(const std::string& word,
                                   const std::vector<std::string>& candidates);

/// The variables of this process.
std::map<std::string, std::string> environment_variables();

}  // namespace lockstep
