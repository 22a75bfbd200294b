// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace lockstep {

/// Bytes that processes of this machine and of this one's control groups (v1 and v2) can still
/// touch before the kernel kills one: an allocation beyond them succeeds, its use does not. What
/// the kernel can take back from its cache of files counts as available. Nothing where the system
/// does not say. `root`: where /proc and /sys/fs/cgroup are looked for.
std::optional<std::uint64_t> available_memory(const std::filesystem::path& root = "/");

}  // namespace lockstep
