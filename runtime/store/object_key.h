// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Whether `key` is relative, with parts that are not empty, "." or "..".
bool is_key(std::string_view key);
/// Throws UsageError unless it is.
void check_key(std::string_view key);

/// The name under which an object is written before it has its own: `t/<epoch>.<nonce>`.
std::string temporary_key(std::uint64_t epoch);

}  // namespace lockstep
