// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep::testing_support {

template <typename T>
std::string bytes_of_tokens(const std::vector<std::int32_t>& tokens) {
  std::string bytes;
  for (const std::int32_t token : tokens) {
    const T narrow = static_cast<T>(token);
    bytes.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  }
  return bytes;
}

/// The header that llm.c's data_common.py writes.
inline std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::array<std::int32_t, 256> header = {};
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return {reinterpret_cast<const char*>(header.data()), sizeof header};
}

inline std::string llmc_shard(const std::vector<std::int32_t>& tokens) {
  return llmc_header(20240520, 1, static_cast<std::int32_t>(tokens.size())) +
         bytes_of_tokens<std::uint16_t>(tokens);
}

inline std::string llama3_shard(const std::vector<std::int32_t>& tokens) {
  return llmc_header(20240801, 7, static_cast<std::int32_t>(tokens.size())) +
         bytes_of_tokens<std::uint32_t>(tokens);
}

inline std::string nanogpt_shard(const std::vector<std::int32_t>& tokens) {
  return bytes_of_tokens<std::uint16_t>(tokens);
}

}  // namespace lockstep::testing_support
