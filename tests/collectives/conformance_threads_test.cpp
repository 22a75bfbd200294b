// SPDX-License-Identifier: Apache-2.0
// The suite over the transports that threads of one process can use.
#include "collectives/local/lone_rank_backend.h"
#include "tests/collectives/conformance.h"
#include "tests/support/shm_ranks.h"

namespace lockstep::testing_support {
namespace {

std::vector<std::unique_ptr<Communicator>> make_lone_group(const CommunicatorOptions& options,
                                                           std::shared_ptr<AbortSignal> abort) {
  std::vector<std::unique_ptr<Communicator>> group;
  group.push_back(std::make_unique<Communicator>(std::make_unique<LoneRankBackend>(Device{}),
                                                 std::make_shared<CommunicationThread>("comm"),
                                                 std::move(abort), options));
  return group;
}

std::vector<std::unique_ptr<Communicator>> make_group(const std::string& transport, int ranks,
                                                      const CommunicatorOptions& options,
                                                      const std::shared_ptr<AbortSignal>& abort) {
  if (transport == "lone") return make_lone_group(options, abort);
  return transport == "shm" ? make_shm_group(ranks, options, abort)
                            : make_local_group(ranks, options, abort);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, int>>& instance) {
  return std::get<0>(instance.param) + "_" + std::to_string(std::get<1>(instance.param));
}

}  // namespace

void Conformance::run(const std::function<void(Communicator&)>& body) const {
  const auto [transport, ranks] = GetParam();
  const CommunicatorOptions options{.timeout = std::chrono::seconds(30)};
  auto abort = std::make_shared<AbortSignal>();
  run_group(make_group(transport, ranks, options, abort), abort, body);
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance,
                         ::testing::Combine(::testing::Values("local", "shm"),
                                            ::testing::Values(1, 2, 3, 4)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OneRank, Conformance, ::testing::Values(std::tuple("lone", 1)), name_of);

}  // namespace lockstep::testing_support
