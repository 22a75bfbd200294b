// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lockstep::s3 {

std::string base64(std::span<const std::byte> bytes);

}  // namespace lockstep::s3
