// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/weights.h"
#include "tests/runtime/checkpoint/job_fixture.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// A bf16 parameter with its master, an f32 one, and one that is no weight.
class MixedState {
 public:
  MixedState() {
    *master.as<float>() = 1.0009765625F;  // what bf16 cannot hold
    master.as<float>()[1] = -0.0F;
    plain.as<float>()[0] = 3.0F;
    state.bind("z", StateKind::param, plain);
    state.bind("a.b", StateKind::param, half);
    state.bind("a.b", StateKind::master, master);
    state.bind("steps", StateKind::param, Tensor::zeros({}, {1}, DType::i64));
  }
  Tensor plain = Tensor::zeros({}, {1, 1}, DType::f32);
  Tensor half = Tensor::zeros({}, {2}, DType::bf16);
  Tensor master = Tensor::zeros({}, {2}, DType::f32);
  StateDict state;
};

std::string f32_bytes(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

std::unique_ptr<ObjectStore> store_with(const MixedState& mixed) {
  auto store = fresh_memory_store();
  run_ranks(1, [&](Communicator& world) {
    Checkpointer checkpointer(*store, world, {});
    checkpointer.open({.model = {{"a.b", {2}}, {"z", {1, 1}}, {"steps", {1}}}});
    checkpointer.save(scalars_of(10), mixed.state);
  });
  return store;
}

TEST(Widened, IsExactForEveryF16AndBf16Pattern) {
  for (std::uint32_t bits = 0; bits < 65'536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const auto* data = reinterpret_cast<const std::byte*>(&half);
    const float bf16 = widened(data, 1, DType::bf16)[0];
    EXPECT_EQ(std::bit_cast<std::uint32_t>(bf16), bits << 16);
    const float f16 = widened(data, 1, DType::f16)[0];
    const int exponent = static_cast<int>((bits >> 10) & 31U);
    const auto mantissa = static_cast<float>(bits & 1023U);
    const float sign = (bits & 0x8000U) != 0 ? -1.0F : 1.0F;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(f16), mantissa != 0.0F);
      EXPECT_EQ(std::isinf(f16), mantissa == 0.0F);
    } else if (exponent == 0) {
      EXPECT_EQ(f16, sign * std::ldexp(mantissa, -24));
    } else {
      EXPECT_EQ(f16, sign * std::ldexp(1024.0F + mantissa, exponent - 25));
    }
    EXPECT_EQ(std::signbit(f16), sign < 0.0F);
  }
}

TEST(WeightsSha256, IsOverNamesAndF32BytesInByteOrder) {
  const MixedState mixed;
  const std::string text = std::string("a.b") + '\0' + f32_bytes({1.0009765625F, -0.0F}) + "z" +
                           '\0' + f32_bytes({3.0F});
  EXPECT_EQ(weights_sha256(mixed.state), to_hex(sha256(text)));
  EXPECT_EQ(weights_sha256(*store_with(mixed)), to_hex(sha256(text)));
}

TEST(WeightsSha256, DoesNotDependOnTheNumberOfWriters) {
  const auto one = fresh_memory_store();
  const auto three = fresh_memory_store();
  save_steps(*one, 1, {10});
  save_steps(*three, 3, {10});
  const TestState state(small_model());
  state.fill(10);
  EXPECT_EQ(weights_sha256(*one), weights_sha256(state.dict()));
  EXPECT_EQ(weights_sha256(*three), weights_sha256(state.dict()));
  EXPECT_NE(weights_sha256(*three), weights_sha256(MixedState().state));
}

TEST(Export, WritesSafetensorsInByteOrderOfTheNames) {
  const testing_support::ScratchFolder scratch;
  const auto folder = scratch.path() / "a" / "b";
  const ExportResult result = export_commit(*store_with(MixedState()), folder);
  EXPECT_EQ(result.tensors, 2U);
  const std::string file = content_of(folder / "model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  EXPECT_EQ(length % 8, 0U);
  const auto header = nlohmann::ordered_json::parse(file.substr(8, length));
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  EXPECT_EQ(header["a.b"]["dtype"], "F32");
  EXPECT_EQ(header["a.b"]["shape"], nlohmann::ordered_json({2}));
  EXPECT_EQ(header["a.b"]["data_offsets"], nlohmann::ordered_json({0, 8}));
  EXPECT_EQ(header["z"]["data_offsets"], nlohmann::ordered_json({8, 12}));
  EXPECT_EQ(header.size(), 3U);
  EXPECT_EQ(file.substr(8 + length), f32_bytes({1.0009765625F, -0.0F, 3.0F}));
  EXPECT_EQ(content_of(folder / "config.json"), scalars_of(10).model);
}

TEST(Export, TakesTheStepThatIsAskedFor) {
  const testing_support::ScratchFolder scratch;
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10, 20});
  EXPECT_EQ(export_commit(*store, scratch.path(), 10).commit.step, 10U);
  EXPECT_EQ(export_commit(*store, scratch.path()).commit.step, 20U);
  try {
    export_commit(*store, scratch.path(), 15);
    FAIL() << "found";
  } catch (const DataError& error) {
    EXPECT_EQ(error.outcome(), Outcome::no_checkpoint);
    EXPECT_THAT(error.what(), HasSubstr("of step 15"));
  }
}

TEST(Tools, NeverWriteToTheStore) {
  const testing_support::ScratchFolder scratch;
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10});
  const std::vector<std::string> before = keys_under(*store, "");
  list_commits(*store);
  show_commit(*store);
  verify_checkpoints(*store);
  export_commit(*store, scratch.path());
  weights_sha256(*store);
  EXPECT_EQ(keys_under(*store, ""), before);
}

TEST(Tools, LoadTheParametersWithoutTheOptimizer) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10});
  const TestState saved(small_model());
  saved.fill(10);
  StateDict params;
  for (const TensorSpec& spec : small_model()) {
    params.bind(spec.name, StateKind::param, Tensor::zeros({}, spec.shape, spec.dtype));
  }
  const LoadResult result = load_commit(*store, params);
  EXPECT_EQ(result.state, scalars_of(10));
  EXPECT_EQ(weights_sha256(params), weights_sha256(saved.dict()));
  StateDict other;
  other.bind("no such name", StateKind::param, Tensor::zeros({}, {1}, DType::f32));
  EXPECT_THROW(load_commit(*store, other), ConfigError);
}

TEST(Tools, LoadWhatIsCommonWhereTheyAreAskedTo) {
  const auto store = fresh_memory_store();
  save_steps(*store, 2, {10});
  const TestState saved(small_model());
  saved.fill(10);
  // The first one is gone, the second has another shape, and there is one more.
  const std::vector<TensorSpec> model = small_model();
  ASSERT_GT(model.size(), 2U);
  StateDict state;
  const Tensor changed = Tensor::zeros({}, {7}, DType::f32);
  const Tensor added = Tensor::zeros({}, {3}, DType::f32);
  ASSERT_NE(model[1].shape, changed.shape());
  state.bind(model[1].name, StateKind::param, changed);
  state.bind("added", StateKind::param, added);
  for (std::size_t i = 2; i < model.size(); ++i) {
    state.bind(model[i].name, StateKind::param, Tensor::zeros({}, model[i].shape, model[i].dtype));
  }
  EXPECT_THROW(load_commit(*store, state), ConfigError);

  const LoadResult result = load_commit(*store, state, 10, LoadMatch::common);
  EXPECT_EQ(result.state, scalars_of(10));
  EXPECT_THAT(result.warnings, Contains(HasSubstr("changed: " + model[1].name + " ")));
  EXPECT_THAT(result.warnings, Contains(HasSubstr("not in the checkpoint: added")));
  EXPECT_THAT(result.warnings, Contains(HasSubstr("only in the checkpoint: " + model[0].name)));
  for (std::size_t i = 2; i < model.size(); ++i) {
    const Tensor& got = state.find(model[i].name, StateKind::param)->tensor;
    const Tensor& wanted = saved.dict().find(model[i].name, StateKind::param)->tensor;
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), wanted.bytes()), 0) << model[i].name;
    EXPECT_THAT(result.warnings, Not(Contains(HasSubstr(" " + model[i].name + " "))));
  }
  for (const Tensor& tensor : {changed, added}) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) EXPECT_EQ(tensor.as<float>()[i], 0.0F);
  }
}

TEST(Tools, FindTheStoreOfARunFolder) {
  const testing_support::ScratchFolder scratch;
  const auto run = scratch.path() / "run";
  const auto store = ObjectStore::open("file:" + (run / "checkpoints").string());
  save_steps(*store, 1, {10});
  EXPECT_EQ(list_commits(*open_checkpoints(run.string())).commits.size(), 1U);
  EXPECT_EQ(list_commits(*open_checkpoints((run / "checkpoints").string())).commits.size(), 1U);
  EXPECT_EQ(list_commits(*open_checkpoints(store->uri())).commits.size(), 1U);
  EXPECT_THROW(open_checkpoints(scratch.path().string()), ConfigError);
  EXPECT_THROW(open_checkpoints((scratch.path() / "absent").string()), ConfigError);
}

}  // namespace
}  // namespace lockstep
