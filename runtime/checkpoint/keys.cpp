// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kLastSeq = 999'999'999'999;
constexpr std::string_view kLogPrefix = "log/";
constexpr std::string_view kLogSuffix = ".json";
constexpr std::size_t kNameLimit = 1000;  // bytes, escaped

std::string padded(std::uint64_t number, std::size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

std::string stem_of(const SaveId& id) {
  return padded(id.step, 12) + "." + padded(id.epoch, 6) + "." + padded(id.try_number, 3);
}

/// All of `text` as decimal digits, at least `width` of them.
std::optional<std::uint64_t> number_of(std::string_view text, std::size_t width) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.size() < width) {
    return std::nullopt;
  }
  return number;
}

std::optional<SaveId> parse_stem(std::string_view stem) {
  const std::size_t first = stem.find('.');
  const std::size_t last = stem.rfind('.');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  const auto step = number_of(stem.substr(0, first), 12);
  const auto epoch = number_of(stem.substr(first + 1, last - first - 1), 6);
  const auto try_number = number_of(stem.substr(last + 1), 3);
  if (!step || !epoch || !try_number) return std::nullopt;
  return SaveId{.step = *step, .epoch = *epoch, .try_number = *try_number};
}

bool must_escape(std::string_view name, std::size_t i) {
  const char c = name[i];
  const auto byte = static_cast<unsigned char>(c);
  return c == '/' || c == '%' || byte < 0x20 || byte == 0x7F || (i == 0 && (c == '.' || c == '~'));
}

}  // namespace

std::string record_key(std::uint64_t seq) { return "log/" + padded(kLastSeq - seq, 12) + ".json"; }

std::optional<std::uint64_t> record_seq(std::string_view key) {
  if (key.size() != kLogPrefix.size() + 12 + kLogSuffix.size()) return std::nullopt;
  if (!key.starts_with(kLogPrefix) || !key.ends_with(kLogSuffix)) return std::nullopt;
  const auto number = number_of(key.substr(kLogPrefix.size(), 12), 12);
  if (!number) return std::nullopt;
  return kLastSeq - *number;
}

std::string manifest_key(const SaveId& id) { return "m/" + stem_of(id) + ".json"; }

std::string shard_key(const SaveId& id, std::uint64_t writer) {
  const std::string name = padded(writer, 6);
  // Bytes of a hash early in the key spread the shards of a save over an object store's servers.
  const Sha256Digest hash = sha256(padded(id.step, 12) + "." + name);
  return "s/" + to_hex(std::span(hash).first(1)) + "/" + stem_of(id) + "/w" + name + ".h5";
}

std::optional<SaveId> save_of(std::string_view key) {
  if (key.starts_with("m/") && key.ends_with(".json")) {
    return parse_stem(key.substr(2, key.size() - 2 - 5));
  }
  const std::size_t name = key.rfind('/');
  if (!key.starts_with("s/") || !key.ends_with(".h5") || name < 5 || key[4] != '/') {
    return std::nullopt;
  }
  return parse_stem(key.substr(5, name - 5));
}

std::optional<std::uint64_t> temporary_epoch(std::string_view key) {
  const std::size_t dot = key.find('.');
  if (!key.starts_with("t/") || dot == std::string_view::npos) return std::nullopt;
  return number_of(key.substr(2, dot - 2), 6);
}

std::string escape_name(std::string_view name) {
  if (name.empty()) return "%";
  std::string escaped;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (!must_escape(name, i)) {
      escaped += name[i];
      continue;
    }
    std::array<char, 4> code = {};
    std::snprintf(code.data(), code.size(), "%%%02X",
                  static_cast<unsigned>(static_cast<unsigned char>(name[i])));
    escaped += code.data();
  }
  if (escaped.size() > kNameLimit) return "~" + to_hex(sha256(name));
  return escaped;
}

std::string group_path(std::string_view kind) {
  if (kind == "param" || kind == "state") return "/" + std::string(kind);
  if (kind == "master" || kind == "m" || kind == "v") return "/optim/" + std::string(kind);
  return {};
}

std::string dataset_path(std::string_view kind, std::string_view name, std::uint64_t run) {
  std::string path = group_path(kind) + "/" + escape_name(name);
  if (run > 0) path += "%~" + std::to_string(run);
  return path;
}

std::string_view without_run(std::string_view escaped) {
  // An escaped name has two hex digits behind every '%', so "%~" can only begin a suffix.
  return escaped.substr(0, escaped.rfind("%~"));
}

}  // namespace lockstep
