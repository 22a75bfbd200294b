// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/handshake.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "lockstep/collectives/agree.h"
#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

constexpr std::size_t kShownWhole = 64;
constexpr std::size_t kShownAround = 24;  // characters on each side of a difference

using Fields = std::vector<HandshakeField>;

std::string encode_fields(std::span<const HandshakeField> fields) {
  std::string text;
  for (const HandshakeField& field : fields) {
    text += std::to_string(field.name.size()) + ' ' + std::to_string(field.value.size()) + ' ' +
            field.name + field.value;
  }
  return text;
}

Fields decode_fields(const std::string& text) {
  Fields fields;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t first = text.find(' ', at);
    const std::size_t second = text.find(' ', first + 1);
    const std::size_t name = std::stoul(text.substr(at, first - at));
    const std::size_t value = std::stoul(text.substr(first + 1, second - first - 1));
    fields.push_back(
        {.name = text.substr(second + 1, name), .value = text.substr(second + 1 + name, value)});
    at = second + 1 + name + value;
  }
  return fields;
}

std::string show(const std::string& value, std::size_t difference) {
  if (value.size() <= kShownWhole) return '"' + value + '"';
  const std::size_t begin = difference > kShownAround ? difference - kShownAround : 0;
  return std::to_string(value.size()) + " characters, SHA-256 " +
         to_hex(sha256(value)).substr(0, 12) + "…, at " + std::to_string(difference) + " \"" +
         value.substr(begin, difference - begin + kShownAround) + '"';
}

std::optional<std::string> difference(const HandshakeField* a, int rank_a, const HandshakeField* b,
                                      int rank_b) {
  if (a != nullptr && b != nullptr && a->name == b->name && a->value == b->value) {
    return std::nullopt;
  }
  const auto who = [](int rank) { return "rank " + std::to_string(rank); };
  if (a == nullptr || b == nullptr || a->name != b->name) {
    const auto name = [](const HandshakeField* f) { return f ? '"' + f->name + '"' : "nothing"; };
    return "the ranks compare different things: " + who(rank_a) + " has " + name(a) + ", " +
           who(rank_b) + " has " + name(b);
  }
  const auto at = static_cast<std::size_t>(
      std::mismatch(a->value.begin(), a->value.end(), b->value.begin(), b->value.end()).first -
      a->value.begin());
  return a->name + " differs: " + who(rank_a) + " has " + show(a->value, at) + ", " + who(rank_b) +
         " has " + show(b->value, at);
}

}  // namespace

void handshake(Communicator& group, std::span<const HandshakeField> fields) {
  std::vector<Fields> all;
  for (const std::string& text : gather_text(group, encode_fields(fields))) {
    all.push_back(decode_fields(text));
  }
  std::size_t most = 0;
  for (const Fields& each : all) most = std::max(most, each.size());
  for (std::size_t i = 0; i < most; ++i) {
    const auto field = [&](std::size_t rank) {
      return i < all[rank].size() ? &all[rank][i] : nullptr;
    };
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const auto text = difference(field(0), 0, field(rank), static_cast<int>(rank));
      if (text) {
        throw ConfigError("group " + group.name() + ": " + *text,
                          "start every rank with the same build, options and data");
      }
    }
  }
}

}  // namespace lockstep
