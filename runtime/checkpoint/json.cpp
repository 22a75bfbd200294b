// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "lockstep/core/error.h"
#include "runtime/store/object_key.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw DataError(what, "the object is damaged or was written by another program");
}

}  // namespace

Json parse_json(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string duplicate;
  const auto watch = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) duplicate = key;
    }
    return true;
  };
  Json value;
  try {
    value = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    refuse(std::string("invalid JSON: ") + error.what());
  }
  if (!duplicate.empty()) refuse("member \"" + duplicate + "\" appears twice");
  return value;
}

std::string to_text(const Json& value) {
  try {
    return value.dump();
  } catch (const Json::exception& error) {
    throw UsageError(std::string("checkpoint: ") + error.what(), "names and texts must be UTF-8");
  }
}

const Json& get_member(const Json& object, const char* key) {
  if (!object.is_object()) refuse(std::string("no object around member \"") + key + "\"");
  const auto found = object.find(key);
  if (found == object.end()) refuse(std::string("member \"") + key + "\" is missing");
  return *found;
}

const Json& get_object(const Json& object, const char* key) {
  const Json& value = get_member(object, key);
  if (!value.is_object()) refuse(std::string("member \"") + key + "\" is no object");
  return value;
}

const Json& get_array(const Json& object, const char* key) {
  const Json& value = get_member(object, key);
  if (!value.is_array()) refuse(std::string("member \"") + key + "\" is no list");
  return value;
}

std::uint64_t as_integer(const Json& value, const char* name) {
  if (!value.is_number_unsigned()) {
    refuse(std::string("member \"") + name + "\" is no integer from 0 to 2^64 - 1");
  }
  return value.get<std::uint64_t>();
}

std::uint64_t get_integer(const Json& object, const char* key) {
  return as_integer(get_member(object, key), key);
}

std::optional<std::uint64_t> get_optional_integer(const Json& object, const char* key) {
  const Json& value = get_member(object, key);
  if (value.is_null()) return std::nullopt;
  return as_integer(value, key);
}

std::optional<double> find_real(const Json& object, const char* key) {
  if (!object.is_object()) refuse(std::string("no object around member \"") + key + "\"");
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  if (!found->is_number()) refuse(std::string("member \"") + key + "\" is no number");
  return found->get<double>();
}

std::string get_string(const Json& object, const char* key) {
  const Json& value = get_member(object, key);
  if (!value.is_string()) refuse(std::string("member \"") + key + "\" is no string");
  return value.get<std::string>();
}

std::string get_hex(const Json& object, const char* key, std::size_t digits) {
  std::string text = get_string(object, key);
  const bool good = text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
                      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                    });
  if (!good) {
    refuse(std::string("member \"") + key + "\" is not " + std::to_string(digits) +
           " lower-case hex digits");
  }
  return text;
}

std::string get_key(const Json& object, const char* key) {
  std::string text = get_string(object, key);
  try {
    check_key(text);
  } catch (const UsageError& error) {
    refuse(error.what());
  }
  return text;
}

std::map<std::string, std::string> get_strings(const Json& object, const char* key) {
  std::map<std::string, std::string> strings;
  const Json& members = get_object(object, key);
  for (const auto& [name, value] : members.items()) {
    if (value.is_string()) strings[name] = value.get<std::string>();
  }
  return strings;
}

Json to_json(const std::map<std::string, std::string>& strings) {
  Json object = Json::object();
  for (const auto& [name, value] : strings) object[name] = value;
  return object;
}

}  // namespace lockstep
