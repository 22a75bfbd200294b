// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>

#include "lockstep/collectives/communicator.h"

namespace lockstep::testing_support {

/// The suite over all transports. A program that runs it says which there are (INSTANTIATE) and how
/// a group of them comes about: threads of one process, or the processes of a job.
class Conformance : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  /// Runs `body` on every rank of a new group: the transport and the size are the parameter.
  void run(const std::function<void(Communicator&)>& body) const;
};

}  // namespace lockstep::testing_support
