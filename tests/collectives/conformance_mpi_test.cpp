// SPDX-License-Identifier: Apache-2.0
// The suite over the transport of a job, with as many ranks as mpirun has started.
#include "support/mpi_main.h"
#include "tests/collectives/conformance.h"

namespace lockstep::testing_support {

void Conformance::run(const std::function<void(Communicator&)>& body) const {
  const auto group = job().split("conformance", 0, job().rank(), Lane::data, device());
  body(*group);
}

INSTANTIATE_TEST_SUITE_P(Job, Conformance, ::testing::Values(std::make_tuple("job", 0)),
                         [](const auto&) { return "job"; });

}  // namespace lockstep::testing_support
