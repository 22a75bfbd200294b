// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "lockstep/core/error.h"
#include "tests/runtime/checkpoint/job_fixture.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::scalars_of;

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

Manifest small_manifest() {
  TrainState state = scalars_of(10);
  state.seed = 5;
  state.data.fingerprint = "ff";
  state.model = "{}";
  return {.job = "6f9619ff-8b86-4011-b42d-00c04fc964ff",
          .epoch = 1,
          .try_number = 0,
          .nonce = "00112233445566778899aabbccddeeff",
          .mesh = {.dp = 1, .tp = 1, .zero = 0},
          .plan_sha256 = repeated("ab", 32),
          .tensors = {{"a/b", {2, 3}, DType::f32, {StateKind::param, StateKind::m, StateKind::v}},
                      {"größe", {}, DType::bf16, {StateKind::param, StateKind::master}}},
          .shards = {{.key = "s/00/000000000010.000001.000/w000000.h5",
                      .size = 65600,
                      .head_bytes = 65536,
                      .head_sha256 = repeated("cd", 32),
                      .writer = 0,
                      .dp = 0,
                      .tp = 0}},
          .state = state,
          .parameters = 7,
          .bytes = 65600};
}

constexpr const char* kSmall =
    R"({"fmt":"1.0","job":"6f9619ff-8b86-4011-b42d-00c04fc964ff","epoch":1,"step":10,"try":0,)"
    R"("tokens":10000,"nonce":"00112233445566778899aabbccddeeff","mesh":{"dp":1,"tp":1,"zero":0},)"
    R"("plan_sha256":"abababababababababababababababababababababababababababababababab",)"
    R"("tensors":[{"name":"a/b","gshape":[2,3],"dtype":"f32","tp_dim":null,)"
    R"("kinds":["param","m","v"]},{"name":"größe","gshape":[],"dtype":"bf16","tp_dim":null,)"
    R"("kinds":["param","master"]}],"shards":[{"key":"s/00/000000000010.000001.000/w000000.h5",)"
    R"("size":65600,"etag":null,"head_bytes":65536,)"
    R"("head_sha256":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",)"
    R"("writer":0,"dp":0,"tp":0}],"state":{"rng":{"seed":5},"data":{"fingerprint":"ff","seed":7,)"
    R"("epoch":2,"position":96},"sched":{"total":500,"position":10},"V":4,"micro":4,"model":"{}"},)"
    R"("block":4194304,"totals":{"parameters":7,"bytes":65600},)"
    R"("code":{"cpu":"test","lockstep":"0.1.0"}})"
    "\n";

TEST(Manifest, IsWrittenToTheByteAsTheFormatSays) { EXPECT_EQ(encode(small_manifest()), kSmall); }

TEST(Manifest, IsReadBack) {
  const Manifest manifest = decode_manifest(kSmall);
  EXPECT_EQ(manifest.state, small_manifest().state);
  EXPECT_EQ(encode(manifest), kSmall);
}

TEST(Manifest, KeepsTheEtagsOfItsShardsWhereTheStoreHasAny) {
  Manifest manifest = small_manifest();
  EXPECT_EQ(decode_manifest(kSmall).shards[0].etag, "") << "null";
  manifest.shards[0].etag = "9b2cf535f27731c974343645a3985328-13";
  EXPECT_EQ(decode_manifest(encode(manifest)).shards[0].etag, manifest.shards[0].etag);
  std::string bad = kSmall;
  bad.replace(bad.find("\"etag\":null"), 11, "\"etag\":1.5");
  EXPECT_THROW(decode_manifest(bad), DataError);
}

TEST(Manifest, KeepsTheLossScaleAndTheChoicesOfARun) {
  Manifest manifest = small_manifest();
  manifest.state.scaler = {.scale = 0x1p-20, .good_steps = 7, .skipped = 3};
  manifest.state.options = {{"optim.lr", "0.001"}, {"zero", "1"}};
  const std::string text = encode(manifest);
  EXPECT_EQ(decode_manifest(text).state, manifest.state);
  for (const char* scale : {"0", "-1.5", "null", "\"1\""}) {
    std::string bad = text;
    const std::size_t at = bad.find("9.5367431640625e-07");
    ASSERT_NE(at, std::string::npos) << text;
    bad.replace(at, 19, scale);
    EXPECT_THROW(decode_manifest(bad), DataError) << scale;
  }
}

TEST(Manifest, IsRefusedWithTensorsOrShardsOutOfOrder) {
  Manifest manifest = small_manifest();
  std::swap(manifest.tensors[0], manifest.tensors[1]);
  EXPECT_THROW(decode_manifest(encode(manifest)), DataError);
  manifest = small_manifest();
  manifest.shards[0].writer = 1;
  EXPECT_THROW(decode_manifest(encode(manifest)), DataError);
}

TEST(Manifest, MayHoldKeysOfALaterMinorVersion) {
  std::string text = kSmall;
  text.replace(text.find("\"1.0\""), 5, "\"1.9\",\"extra\":[1.5]");
  EXPECT_EQ(decode_manifest(text).parameters, 7U);
  text.replace(text.find("\"1.9\""), 5, "\"2.0\"");
  EXPECT_THROW(decode_manifest(text), ConfigError);
}

TEST(Manifest, SurvivesRandomMutationsWithoutACrash) {
  std::mt19937 random(7);
  const std::string original = kSmall;
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = original;
    for (unsigned change = 0; change <= random() % 3; ++change) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random());
      } else {
        text.insert(at, original.substr(random() % original.size(), random() % 30));
      }
    }
    try {
      decode_manifest(text);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(ModelDifferences, ListWhatWasAddedRemovedAndReshaped) {
  const std::vector<ModelTensor> saved = {{"a", {2}}, {"b", {3, 4}}, {"c", {}}};
  const std::vector<ModelTensor> now = {{"d", {1}}, {"b", {4, 3}}, {"c", {}}};
  EXPECT_THAT(differences(saved, now),
              ElementsAre("added: d [1]", "shape changed: b [3, 4] -> [4, 3]", "removed: a [2]"));
  EXPECT_TRUE(differences(saved, saved).empty());
}

}  // namespace
}  // namespace lockstep
