// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/collectives/mesh.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(MeshShape, GivesDataTheRanksThatTensorLeaves) {
  EXPECT_EQ(complete_shape({}, 3).data, 3);
  EXPECT_EQ(complete_shape({.data = 0, .tensor = 2}, 6).data, 3);
  EXPECT_EQ(complete_shape({.data = 2, .tensor = 3}, 6).data, 2);
}

TEST(MeshShape, RefusesAProductThatIsNotTheNumberOfRanks) {
  for (const MeshShape shape : {MeshShape{2, 2}, MeshShape{0, 2}, MeshShape{0, 4}, MeshShape{3, 0},
                                MeshShape{-3, -1}, MeshShape{1, 1}, MeshShape{65536, 65536}}) {
    EXPECT_THROW(complete_shape(shape, 3), ConfigError) << shape.data << " x " << shape.tensor;
  }
  try {
    complete_shape({.data = 2, .tensor = 2}, 3);
    FAIL() << "2 x 2 on 3 ranks was accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data 2 × tensor 2 is not the number of ranks, 3"));
  }
}

}  // namespace
}  // namespace lockstep
