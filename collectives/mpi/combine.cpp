// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/combine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "collectives/shared_memory/elementwise.h"
#include "collectives/shared_memory/sum_program.h"

namespace lockstep {

Combine combine_by_plan(const SumPlan& plan) {
  return [&plan](std::span<const std::byte* const> parts, std::byte* out, std::size_t count) {
    std::vector<const float*> floats(parts.size());
    for (std::size_t p = 0; p < parts.size(); ++p) {
      floats[p] = reinterpret_cast<const float*>(parts[p]);
    }
    float* const sum = reinterpret_cast<float*>(out);
    shared_memory::run_sum(plan, floats, {&sum, 1}, 0, count);
  };
}

Combine combine_in_order(DType dtype, ReduceOp op) {
  return [=](std::span<const std::byte* const> parts, std::byte* out, std::size_t count) {
    // Block by block, because `out` may be a part that is still to be read.
    alignas(64) std::array<std::byte, 8192> block;
    const std::size_t width = size_of(dtype);
    const std::size_t most = block.size() / width;
    for (std::size_t begin = 0; begin < count; begin += most) {
      const std::size_t size = std::min(most, count - begin);
      std::memcpy(block.data(), parts[0] + begin * width, size * width);
      for (std::size_t p = 1; p < parts.size(); ++p) {
        shared_memory::combine(block.data(), parts[p] + begin * width, size, dtype, op);
      }
      std::memcpy(out + begin * width, block.data(), size * width);
    }
  };
}

}  // namespace lockstep
