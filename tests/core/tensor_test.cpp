// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "lockstep/core/error.h"
#include "lockstep/core/parameter.h"
#include "lockstep/core/state_dict.h"

namespace lockstep {
namespace {

TEST(Tensor, IsAlignedAndKnowsItsSize) {
  const Tensor tensor({}, {3, 5}, DType::f32);
  EXPECT_EQ(tensor.size(), 15);
  EXPECT_EQ(tensor.bytes(), 60U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0U);
}

TEST(Tensor, CountsAScalarAsOneElementAndAnEmptyDimensionAsNone) {
  EXPECT_EQ(Tensor({}, {}, DType::f32).size(), 1);
  const Tensor empty({}, {0, 4}, DType::f32);
  EXPECT_EQ(empty.size(), 0);
  EXPECT_TRUE(empty.defined());
}

TEST(Tensor, SharesMemoryBetweenCopiesAndViews) {
  const Tensor tensor = Tensor::zeros({}, {4, 3}, DType::f32);
  const Tensor rows = tensor.rows(1, 3);
  rows.as<float>()[0] = 7.0F;
  EXPECT_EQ(tensor.as<float>()[3], 7.0F);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_EQ(tensor.reshape({12}).as<float>()[3], 7.0F);
}

TEST(Tensor, KeepsItsMemoryWhileAViewLives) {
  Tensor view;
  {
    const Tensor tensor = Tensor::zeros({}, {1000}, DType::f32);
    tensor.as<float>()[999] = 1.5F;
    view = tensor.rows(999, 1000);
  }
  EXPECT_EQ(view.as<float>()[0], 1.5F);
}

TEST(Tensor, RefusesWrongTypesShapesAndRows) {
  const Tensor tensor({}, {4, 3}, DType::f32);
  EXPECT_THROW(tensor.as<double>(), UsageError);
  EXPECT_THROW(tensor.reshape({5}), UsageError);
  EXPECT_THROW(tensor.rows(2, 5), UsageError);
  EXPECT_THROW(Tensor({}, {-1}, DType::f32), UsageError);
  EXPECT_THROW(Tensor({.kind = DeviceKind::cuda}, {1}, DType::f32), DeviceError);
}

TEST(Dlpack, GivesTheSamePointerBack) {
  const Tensor tensor = Tensor::zeros({}, {2, 3}, DType::i64);
  const Tensor back = Tensor::from_dlpack(tensor.to_dlpack());
  EXPECT_EQ(back.data(), tensor.data());
  EXPECT_EQ(back.shape(), tensor.shape());
  EXPECT_EQ(back.dtype(), DType::i64);
}

TEST(Dlpack, KeepsTheMemoryOfTheSource) {
  DLManagedTensorVersioned* exported = nullptr;
  {
    const Tensor tensor = Tensor::zeros({}, {100}, DType::f32);
    tensor.as<float>()[99] = 2.5F;
    exported = tensor.to_dlpack();
  }
  EXPECT_EQ(Tensor::from_dlpack(exported).as<float>()[99], 2.5F);
}

TEST(Parameter, OverwritesFirstAndAddsForATiedUse) {
  Parameter parameter({}, "w", {2});
  EXPECT_THROW(parameter.next_gradient(), UsageError);
  parameter.begin_pass(Tensor::zeros({}, {2}, DType::f32), false);
  EXPECT_FALSE(parameter.next_gradient().add);
  EXPECT_TRUE(parameter.next_gradient().add);
  parameter.begin_pass(parameter.grad(), true);
  EXPECT_TRUE(parameter.next_gradient().add);
  EXPECT_THROW(parameter.begin_pass(Tensor::zeros({}, {3}, DType::f32), false), UsageError);
}

TEST(Parameter, BelongsToOneReducerAtATime) {
  Parameter parameter({}, "w", {2});
  int marks = 0;
  parameter.mark_ready({});
  parameter.on_ready([&](const Event&) { ++marks; });
  parameter.mark_ready({});
  EXPECT_EQ(marks, 1);
  EXPECT_THROW(parameter.on_ready([](const Event&) {}), UsageError);
  parameter.on_ready({});
  EXPECT_NO_THROW(parameter.on_ready([](const Event&) {}));
}

TEST(StateDict, FindsByNameAndKindAndRefusesASecondBinding) {
  StateDict state;
  const Tensor tensor = Tensor::zeros({}, {2}, DType::f32);
  state.bind("w", StateKind::param, tensor);
  state.bind("w", StateKind::m, tensor);
  EXPECT_EQ(state.entries().size(), 2U);
  EXPECT_NE(state.find("w", StateKind::m), nullptr);
  EXPECT_EQ(state.find("w", StateKind::v), nullptr);
  EXPECT_THROW(state.bind("w", StateKind::m, tensor), UsageError);
}

}  // namespace
}  // namespace lockstep
