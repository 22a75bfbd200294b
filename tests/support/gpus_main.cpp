// SPDX-License-Identifier: Apache-2.0
// The main of tests between GPUs: over the fakes there are as many as the largest group has ranks.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  setenv("LOCKSTEP_FAKE_GPUS", "4", 0);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
