// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

namespace lockstep {

/// One save: `try_number` counts the saves of one step within one launch.
struct SaveId {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::uint64_t try_number = 0;
  bool operator==(const SaveId&) const = default;
  bool operator<(const SaveId& other) const {
    return std::tie(step, epoch, try_number) < std::tie(other.step, other.epoch, other.try_number);
  }
};

/// `log/<999999999999 − seq>.json`: newest first in a plain listing.
std::string record_key(std::uint64_t seq);
/// The seq of a key under log/; nothing for other names.
std::optional<std::uint64_t> record_seq(std::string_view key);

std::string manifest_key(const SaveId& id);
std::string shard_key(const SaveId& id, std::uint64_t writer);
/// The save that a shard or manifest key belongs to; nothing for other names.
std::optional<SaveId> save_of(std::string_view key);
/// The epoch of `t/<epoch>.<nonce>`; nothing for other names.
std::optional<std::uint64_t> temporary_epoch(std::string_view key);

/// The name of a dataset for a tensor name: percent escapes, and a hash for very long ones.
std::string escape_name(std::string_view name);
/// "param", "master", "m", "v" or "state": the group that holds them; an empty text for no kind.
std::string group_path(std::string_view kind);
/// Path of the `run`-th dataset of one tensor in one shard.
std::string dataset_path(std::string_view kind, std::string_view name, std::uint64_t run);
/// An escaped name without its run suffix.
std::string_view without_run(std::string_view escaped);

}  // namespace lockstep
