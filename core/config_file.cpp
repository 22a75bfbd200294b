// SPDX-License-Identifier: Apache-2.0
#include <toml++/toml.h>
#include <fstream>
#include <sstream>

#include "lockstep/core/config.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct FileEntry {
  std::string key;
  std::string text;
  std::uint32_t line;
};

// The value as a flag would spell it. Arrays and dates have no key that takes them.
std::string text_of(const toml::node& node, const std::string& where) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (node.is_integer() || node.is_floating_point()) {
    std::ostringstream text;
    text.precision(17);
    if (node.is_integer()) {
      text << node.as_integer()->get();
    } else {
      text << node.as_floating_point()->get();
    }
    return text.str();
  }
  throw ConfigError(where + ": the value is neither text, number nor boolean",
                    "lists are written as one text with commas");
}

void collect(const toml::table& table, const std::string& prefix, const std::string& path,
             std::vector<FileEntry>& entries) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (const auto* inner = node.as_table()) {
      collect(*inner, key + ".", path, entries);
      continue;
    }
    const std::uint32_t line = node.source().begin.line;
    entries.push_back({key, text_of(node, path + ":" + std::to_string(line)), line});
  }
}

}  // namespace

void Config::read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError("cannot read the configuration " + path, "check --config");
  std::ostringstream content;
  content << file.rdbuf();

  std::vector<FileEntry> entries;
  try {
    collect(toml::parse(content.str(), path), "", path, entries);
  } catch (const toml::parse_error& error) {
    throw ConfigError(path + ":" + std::to_string(error.source().begin.line) + ": " +
                          std::string(error.description()),
                      "the file must be TOML: key = value, [table]");
  }
  for (FileEntry& entry : entries) {
    const std::string where = path + ":" + std::to_string(entry.line);
    if (!find(entry.key)) {
      refuse_unknown(where + ": key " + entry.key + " is unknown", entry.key,
                     [](const ConfigKey& key) { return key.name; });
    }
    store(Level::file, entry.key, std::move(entry.text), where);
  }
}

}  // namespace lockstep
