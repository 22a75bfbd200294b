// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/config.h"

#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::string flag_of(const ConfigKey& key) { return "--" + key.name; }

std::string dashed(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '_'; }, '-');
  return name;
}

std::string variable_of(const ConfigKey& key) {
  std::string name = "LOCKSTEP_" + key.name;
  for (char& c : name) {
    c = c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

template <typename T>
bool parses_as(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  return code == std::errc{} && stop == end;
}

template <typename T>
T parse(const std::string& text) {
  T value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool is_choice(const ConfigKey& key, const std::string& text) {
  return std::find(key.choices.begin(), key.choices.end(), text) != key.choices.end();
}

std::string wanted_form(const ConfigKey& key) {
  std::string words;
  for (const std::string& choice : key.choices) words += " " + choice;
  switch (key.type) {
    case ConfigType::boolean:
      return "true or false";
    case ConfigType::integer:
      return "an integer" + (words.empty() ? words : " or" + words);
    case ConfigType::unsigned_integer:
      return "an integer from 0 to 2^64-1";
    case ConfigType::real:
      return "a finite number";
    case ConfigType::text:
      break;
  }
  return "one of" + words;
}

bool has_form(const ConfigKey& key, const std::string& text) {
  switch (key.type) {
    case ConfigType::boolean:
      return text == "true" || text == "false";
    case ConfigType::integer:
      return is_choice(key, text) || parses_as<std::int64_t>(text);
    case ConfigType::unsigned_integer:
      return parses_as<std::uint64_t>(text);
    case ConfigType::real:
      return parses_as<double>(text) && std::isfinite(parse<double>(text));
    case ConfigType::text:
      return key.choices.empty() || is_choice(key, text);
  }
  return false;
}

std::string number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

void check(const ConfigKey& key, const std::string& text, const std::string& source) {
  const std::string what = key.name + " = \"" + text + "\" (" + source + ")";
  if (!has_form(key, text)) {
    std::string hint = "give " + wanted_form(key);
    if (const auto near = nearest(text, key.choices)) hint += "; did you mean " + *near + "?";
    throw ConfigError(what + " is not " + wanted_form(key), hint);
  }
  if (key.type == ConfigType::text || key.type == ConfigType::boolean) return;
  if (is_choice(key, text)) return;
  const double value = parse<double>(text);
  if (value >= key.min && value <= key.max) return;
  std::string range = std::isfinite(key.min) ? "at least " + number(key.min) : std::string();
  if (std::isfinite(key.max)) {
    range += (range.empty() ? "at most " : " and at most ") + number(key.max);
  }
  throw ConfigError(what + " is out of range", "give a value of " + range);
}

}  // namespace

std::optional<std::string> nearest(const std::string& word,
                                   const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::map<std::string, std::string> environment_variables() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

Config::Config(std::vector<ConfigKey> keys, std::vector<std::string> later)
    : keys_(std::move(keys)), later_(std::move(later)) {}

const ConfigKey* Config::find(const std::string& name) const noexcept {
  const auto found = std::find_if(keys_.begin(), keys_.end(),
                                  [&](const ConfigKey& key) { return key.name == name; });
  return found == keys_.end() ? nullptr : &*found;
}

const ConfigKey& Config::key_of(const std::string& name) const {
  if (const ConfigKey* key = find(name)) return *key;
  throw UsageError("the program asks for an unknown option " + name, "this is a fault of Lockstep");
}

void Config::refuse_unknown(const std::string& what, const std::string& wanted,
                            const std::function<std::string(const ConfigKey&)>& spell) const {
  const bool later = std::any_of(later_.begin(), later_.end(), [&](const std::string& name) {
    const std::string spelled = spell({.name = name});
    return wanted == spelled || wanted == "--" + dashed(name);
  });
  if (later) {
    throw ConfigError(what.substr(0, what.rfind(" is unknown")) + " is not in this version",
                      "leave it out; the README lists what is there");
  }
  std::vector<std::string> spellings;
  spellings.reserve(keys_.size());
  for (const ConfigKey& key : keys_) spellings.push_back(spell(key));
  const auto near = nearest(wanted, spellings);
  throw ConfigError(what, near ? "did you mean " + *near + "?"
                               : std::string("`lockstep train --help` lists all keys"));
}

void Config::store(Level level, const std::string& key, std::string text, std::string source) {
  check(key_of(key), text, source);
  values_[key][level] = {std::move(text), std::move(source)};
}

void Config::set_preset(const std::string& name, const std::string& key, const std::string& value) {
  store(Level::preset, key, value, "preset " + name);
}

void Config::read_arguments(const std::vector<std::string>& arguments) {
  namespace po = boost::program_options;
  po::options_description known;
  for (const ConfigKey& key : keys_) {
    known.add_options()(key.name.c_str(), po::value<std::string>());
    const std::string alias = dashed(key.name);
    if (alias != key.name) known.add_options()(alias.c_str(), po::value<std::string>());
  }
  po::parsed_options parsed(&known);
  try {
    parsed =
        po::command_line_parser(arguments)
            .options(known)
            .style(po::command_line_style::allow_long | po::command_line_style::long_allow_next |
                   po::command_line_style::long_allow_adjacent)
            .allow_unregistered()
            .run();
  } catch (const po::error& error) {
    throw ConfigError(std::string("flags: ") + error.what(),
                      "write each flag as --key value; booleans take true or false");
  }
  for (const auto& option : parsed.options) {
    const std::string spelled =
        option.original_tokens.empty() ? option.string_key : option.original_tokens[0];
    if (option.unregistered) {
      const std::string flag = spelled.substr(0, spelled.find('='));
      refuse_unknown("flag " + flag + " is unknown", flag, flag_of);
    }
    if (option.position_key >= 0 || option.value.size() != 1) {
      throw ConfigError("argument \"" + spelled + "\" belongs to no flag",
                        "write each flag as --key value");
    }
    const auto key = std::find_if(keys_.begin(), keys_.end(), [&](const ConfigKey& candidate) {
      return candidate.name == option.string_key || dashed(candidate.name) == option.string_key;
    });
    const auto given = values_.find(key->name);
    if (given != values_.end() && given->second.contains(Level::arguments)) {
      throw ConfigError("flag " + flag_of(*key) + " is given twice", "give it once");
    }
    store(Level::arguments, key->name, option.value[0], "flag " + flag_of(*key));
  }
}

void Config::read_environment(const std::map<std::string, std::string>& variables,
                              const std::vector<std::string>& reserved) {
  const auto is_reserved = [&](const std::string& name) {
    return std::any_of(reserved.begin(), reserved.end(), [&](const std::string& entry) {
      return entry.ends_with('*') ? name.starts_with(entry.substr(0, entry.size() - 1))
                                  : name == entry;
    });
  };
  for (const auto& variable : variables) {
    const std::string& name = variable.first;  // a lambda cannot capture a structured binding
    if (!name.starts_with("LOCKSTEP_") || is_reserved(name)) continue;
    const auto key = std::find_if(keys_.begin(), keys_.end(), [&](const ConfigKey& candidate) {
      return variable_of(candidate) == name;
    });
    if (key == keys_.end()) refuse_unknown("variable " + name + " is unknown", name, variable_of);
    store(Level::environment, key->name, variable.second, "variable " + name);
  }
}

const Config::Value* Config::value_of(const std::string& key) const noexcept {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second.rbegin()->second;
}

const std::string& Config::text_of(const std::string& key, ConfigType type) const {
  const ConfigKey& spec = key_of(key);
  if (spec.type != type) {
    throw UsageError("option " + key + " is read as another type", "this is a fault of Lockstep");
  }
  const Value* value = value_of(key);
  return value ? value->text : spec.default_value;
}

bool Config::boolean(const std::string& key) const {
  return text_of(key, ConfigType::boolean) == "true";
}
std::int64_t Config::integer(const std::string& key) const {
  if (const std::string spelled = word(key); !spelled.empty()) {
    throw UsageError("option " + key + " is " + spelled + ", not a number",
                     "this is a fault of Lockstep");
  }
  return parse<std::int64_t>(text_of(key, ConfigType::integer));
}
std::string Config::word(const std::string& key) const {
  const std::string& text = text_of(key, ConfigType::integer);
  return is_choice(key_of(key), text) ? text : std::string();
}
std::uint64_t Config::unsigned_integer(const std::string& key) const {
  return parse<std::uint64_t>(text_of(key, ConfigType::unsigned_integer));
}
double Config::real(const std::string& key) const {
  return parse<double>(text_of(key, ConfigType::real));
}
const std::string& Config::text(const std::string& key) const {
  return text_of(key, ConfigType::text);
}

bool Config::given(const std::string& key) const {
  const auto found = values_.find(key);
  return found != values_.end() && found->second.rbegin()->first != Level::preset;
}

std::string Config::source(const std::string& key) const {
  const Value* value = value_of(key_of(key).name);
  return value ? value->source : "default";
}

std::vector<std::pair<std::string, std::string>> Config::resolved() const {
  std::vector<std::pair<std::string, std::string>> all;
  all.reserve(keys_.size());
  for (const ConfigKey& key : keys_) all.emplace_back(key.name, text_of(key.name, key.type));
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace lockstep
