// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/checkpoint/restore.h"

namespace lockstep {

/// Elements of a floating-point type as f32; exact, also for subnormals, infinities and NaN.
std::vector<float> widened(const std::byte* data, std::size_t elements, DType dtype);

/// A floating-point parameter of a commit in f32: the master where there is one.
std::vector<float> read_weight(CommitReader& reader, const TensorLine& tensor);

/// The bytes of f32 values, little-endian.
std::span<const std::byte> little_endian(const std::vector<float>& values) noexcept;

}  // namespace lockstep
