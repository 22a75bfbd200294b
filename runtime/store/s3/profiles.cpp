// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/profiles.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "lockstep/core/error.h"

namespace lockstep::s3 {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1));
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

/// The name in "[profile x]" or "[x]".
std::string name_of(const std::string& header) {
  const std::string inside = trimmed(std::string_view(header).substr(1, header.size() - 2));
  return inside.starts_with("profile ") ? trimmed(inside.substr(8)) : inside;
}

/// The text of a file; empty where there is none.
std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

}  // namespace

Variables process_variables() {
  return [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
}

std::map<std::string, Profile> parse_profiles(std::string_view text, const std::string& file) {
  std::map<std::string, Profile> profiles;
  Profile* profile = nullptr;
  std::string outer;  // the name whose value are the indented lines below it
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string content = trimmed(line);
    if (content.empty() || content[0] == '#' || content[0] == ';') continue;
    if (content.front() == '[' && content.back() == ']') {
      profile = &profiles[name_of(content)];
      outer.clear();
      continue;
    }
    const std::size_t equals = content.find('=');
    if (profile == nullptr || equals == std::string::npos) {
      throw ConfigError(file + " line " + std::to_string(number) + " is not a line of a profile",
                        "lines are [NAME] or NAME = VALUE");
    }
    const std::string name = lower(trimmed(content.substr(0, equals)));
    const std::string value = trimmed(content.substr(equals + 1));
    const bool indented = kBlanks.find(line.front()) != std::string_view::npos;
    if (indented && !outer.empty()) {
      (*profile)[outer + "." + name] = value;
      continue;
    }
    outer = value.empty() ? name : "";
    (*profile)[name] = value;
  }
  return profiles;
}

Profile read_profile(const Variables& variables) {
  const auto file_of = [&](const char* variable, const char* usual) {
    const std::string given = variables(variable);
    return given.empty() ? variables("HOME") + usual : given;
  };
  const std::string asked = variables("AWS_PROFILE");
  const std::string name = asked.empty() ? "default" : asked;
  Profile merged;
  bool found = false;
  for (const std::string& file : {file_of("AWS_CONFIG_FILE", "/.aws/config"),
                                  file_of("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials")}) {
    const auto profiles = parse_profiles(text_of(file), file);
    const auto at = profiles.find(name);
    if (at == profiles.end()) continue;
    found = true;
    for (const auto& [key, value] : at->second) merged[key] = value;
  }
  if (!found && !asked.empty()) {
    throw ConfigError("AWS_PROFILE names profile \"" + asked + "\", which is in no file",
                      "see ~/.aws/config and ~/.aws/credentials, or unset AWS_PROFILE");
  }
  return merged;
}

}  // namespace lockstep::s3
