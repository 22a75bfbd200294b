// SPDX-License-Identifier: Apache-2.0
// Sums over rows in two stages: groups of rows side by side, then the groups in their order. The
// groups and the order within them are those of the CPU's kernels, and so are the bits.
#include "core/cuda/kernel_args.h"

namespace lockstep::cuda {
namespace {

// A thread a column; groups along y.
__global__ void column_groups(const ColumnGroupsArgs a) {
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= a.columns) return;
  const std::int64_t groups = (a.rows + kGroupRows - 1) / kGroupRows;
  for (std::int64_t group = blockIdx.y; group < groups; group += gridDim.y) {
    const std::int64_t left = a.rows - group * kGroupRows;
    const int rows = static_cast<int>(left < kGroupRows ? left : kGroupRows);
    const float* x = a.x + group * kGroupRows * a.columns + column;
    float sum = 0.0F;
    int r = 0;
#pragma unroll 4
    for (; r + 4 <= rows; r += 4) {  // four rows, added as pairs
      const float low = x[0] + x[a.columns];
      const float high = x[2 * a.columns] + x[3 * a.columns];
      sum = sum + (low + high);
      x += 4 * a.columns;
    }
    for (; r < rows; ++r) {
      sum = sum + *x;
      x += a.columns;
    }
    a.groups[group * a.columns + column] = sum;
  }
}

__global__ void group_total(const GroupTotalArgs a) {
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= a.columns) return;
  const float* group = a.groups + column;
  float total = 0.0F;
#pragma unroll 16  // loads that do not wait for each other
  for (std::int64_t i = 0; i < a.count; ++i) total = total + group[i * a.columns];
  a.out[column] = a.add ? a.out[column] + total : total;
}

}  // namespace

const Kernel<ColumnGroupsArgs> kColumnGroups{"column_groups",
                                             reinterpret_cast<const void*>(&column_groups)};
const Kernel<GroupTotalArgs> kGroupTotal{"group_total",
                                         reinterpret_cast<const void*>(&group_total)};

}  // namespace lockstep::cuda
