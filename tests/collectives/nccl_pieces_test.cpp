// SPDX-License-Identifier: Apache-2.0
// Sums by a plan that are larger than the scratch memory: they go piece by piece.
#include <gtest/gtest.h>

#include <cstring>

#include "collectives/nccl/reduction.h"
#include "core/cuda/device.h"
#include "core/kernels.h"
#include "tests/support/nccl_ranks.h"
#include "tests/support/on_device.h"

namespace lockstep {
namespace {

using nccl::Reduction;

TEST(NcclReduction, CutsEverySliceWithoutGapsWithinItsScratch) {
  SumPlan plan = invariant_plan(3, 7);
  for (const DType type : {DType::f32, DType::bf16}) {
    plan.parts_type = plan.sum_type = type;
    for (const std::size_t scratch : {std::size_t{20'000}, std::size_t{1} << 20}) {
      const std::vector<std::size_t> edges{0, 10'007, 10'007, 23'001};
      const Reduction cut(plan, edges, scratch);
      EXPECT_LE(cut.scratch().bytes, scratch);
      EXPECT_GT(cut.scratch().bytes, scratch - scratch / 2);
      EXPECT_EQ(cut.piece_size() % 64, 0U);
      for (std::size_t rank = 0; rank < 3; ++rank) {
        std::size_t at = edges[rank];
        for (std::size_t piece = 0; piece < cut.pieces(); ++piece) {
          const Reduction::Slice slice = cut.slice_of(rank, piece);
          EXPECT_EQ(slice.begin, at);
          EXPECT_LE(slice.size, cut.piece_size());
          at += slice.size;
        }
        EXPECT_EQ(at, edges[rank + 1]);
      }
    }
  }
}

TEST(NcclReduction, RefusesMorePartsThanItsScratchHolds) {
  EXPECT_THROW(Reduction(ordered_plan(1000), nccl::even_edges(5000, 1000), 100'000), UsageError);
}

// Exact in bf16; the sums are not.
float value(int rank, std::int64_t i) {
  return static_cast<float>((i + 37 * rank) % 251 - 125) * (rank == 0 ? 1.0F : 0.0078125F);
}

std::int64_t differences(const Tensor& sum, int ranks, DType type) {
  const Tensor got = testing_support::on_host(sum);
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    float want = value(0, i);
    for (int rank = 1; rank < ranks; ++rank) want += value(rank, i);
    kernels::round_elements(&want, type, &want, 1);
    different += std::memcmp(&want, got.as<float>() + i, sizeof want) != 0 ? 1 : 0;
  }
  return different;
}

TEST(NcclReduction, AddsPieceByPieceWithTheSameBits) {
  constexpr int kRanks = 3;
  if (cuda::device_count() < kRanks) GTEST_SKIP() << "needs 3 GPUs";
  constexpr std::int64_t kSize = 9'000'001;  // 36 MB; the scratch memory has 32 MiB
  const auto abort = std::make_shared<AbortSignal>();
  const CommunicatorOptions options{.timeout = std::chrono::seconds(60)};
  const auto body = [](Communicator& group) {
    const Tensor mine(Device{}, {kSize}, DType::f32);
    for (std::int64_t i = 0; i < kSize; ++i) mine.as<float>()[i] = value(group.rank(), i);
    const Tensor data = group.allocate(kSize, DType::f32);
    for (const DType type : {DType::f32, DType::bf16}) {
      SumPlan plan = ordered_plan(group.size());
      plan.parts_type = plan.sum_type = type;
      testing_support::put(mine, data);
      group.reduce_parts({data}, data, std::make_shared<const SumPlan>(plan)).wait();
      EXPECT_EQ(differences(data, group.size(), type), 0) << to_string(type);
    }
  };
  testing_support::run_group(testing_support::make_nccl_group(kRanks, options, abort), abort, body);
}

}  // namespace
}  // namespace lockstep
