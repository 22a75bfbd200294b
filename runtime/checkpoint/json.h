// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Sources that look into a value include <nlohmann/json.hpp>, which is long.
using Json = nlohmann::ordered_json;

// The JSON of log records and manifests. All functions throw DataError that names the member.

/// Parses; a duplicate key is an error.
Json parse_json(std::string_view text);
/// Compact UTF-8, members in order. Throws UsageError for text that is not UTF-8.
std::string to_text(const Json& value);

const Json& get_member(const Json& object, const char* key);
const Json& get_object(const Json& object, const char* key);
const Json& get_array(const Json& object, const char* key);
/// An integer from 0 to 2^64 − 1 without fraction or exponent.
std::uint64_t get_integer(const Json& object, const char* key);
/// The same, or null.
std::optional<std::uint64_t> get_optional_integer(const Json& object, const char* key);
/// A finite number; nothing where it is null or absent.
std::optional<double> find_real(const Json& object, const char* key);
std::string get_string(const Json& object, const char* key);
/// Lower-case hexadecimal of `digits` digits.
std::string get_hex(const Json& object, const char* key, std::size_t digits);
/// The key of an object in a store.
std::string get_key(const Json& object, const char* key);
std::uint64_t as_integer(const Json& value, const char* name);

/// An object whose members are strings.
std::map<std::string, std::string> get_strings(const Json& object, const char* key);
Json to_json(const std::map<std::string, std::string>& strings);

}  // namespace lockstep
