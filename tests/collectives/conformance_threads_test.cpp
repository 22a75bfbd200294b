// SPDX-License-Identifier: Apache-2.0
// The suite over the transports that threads of one process can use.
#include "tests/collectives/conformance.h"
#include "tests/support/shm_ranks.h"

namespace lockstep::testing_support {

void Conformance::run(const std::function<void(Communicator&)>& body) const {
  const auto [transport, ranks] = GetParam();
  const CommunicatorOptions options{.timeout = std::chrono::seconds(30)};
  auto abort = std::make_shared<AbortSignal>();
  run_group(transport == "shm" ? make_shm_group(ranks, options, abort)
                               : make_local_group(ranks, options, abort),
            abort, body);
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance,
                         ::testing::Combine(::testing::Values("local", "shm"),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" +
                                  std::to_string(std::get<1>(instance.param));
                         });

}  // namespace lockstep::testing_support
