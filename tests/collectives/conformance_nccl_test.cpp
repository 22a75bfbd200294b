// SPDX-License-Identifier: Apache-2.0
// The suite between GPUs, with ranks as threads of this process.
#include "core/cuda/device.h"
#include "tests/collectives/conformance.h"
#include "tests/support/nccl_ranks.h"

namespace lockstep::testing_support {

void Conformance::run(const std::function<void(Communicator&)>& body) const {
  const int ranks = std::get<1>(GetParam());
  if (cuda::device_count() < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs";
  const CommunicatorOptions options{.timeout = std::chrono::seconds(30)};
  auto abort = std::make_shared<AbortSignal>();
  run_group(make_nccl_group(ranks, options, abort), abort, body);
}

INSTANTIATE_TEST_SUITE_P(
    Nccl, Conformance, ::testing::Combine(::testing::Values("nccl"), ::testing::Values(1, 2, 3, 4)),
    [](const auto& instance) { return std::to_string(std::get<1>(instance.param)) + "_ranks"; });

}  // namespace lockstep::testing_support
