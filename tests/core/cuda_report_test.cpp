// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/cuda/device.h"
#include "lockstep/core/device.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(CudaReport, SaysWhatIsMissingOrNamesEachDevice) {
  const std::string report = cuda_report();
  EXPECT_THAT(report, AllOf(StartsWith("cuda: "), Not(EndsWith("\n"))));
  const int count = cuda::device_count();
  if (count == 0) {
    EXPECT_THAT(report, ContainsRegex("scripts/build cuda|install the NVIDIA driver|nvidia-smi"));
  }
  for (int device = 0; device < count; ++device) {
    EXPECT_THAT(report, HasSubstr("\n  " + to_string(Device{DeviceKind::cuda, device}) + ": "));
  }
}

}  // namespace
}  // namespace lockstep
