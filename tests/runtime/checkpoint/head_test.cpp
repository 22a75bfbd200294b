// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/hdf5.h"
#include "runtime/checkpoint/shard.h"
#include "tests/runtime/checkpoint/job_fixture.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

ShardHead head_of(const std::vector<PlanTensor>& tensors) {
  ShardHead head{.job = "6f9619ff-8b86-4011-b42d-00c04fc964ff",
                 .epoch = 1,
                 .step = 10,
                 .writer = 0,
                 .mesh = {.dp = 1, .tp = 1, .zero = 0},
                 .plan_sha256 = std::string(64, 'a'),
                 .head_bytes = 0,
                 .total_bytes = 0,
                 .fragments = plan_shards(tensors, 1).at(0)};
  head.head_bytes = head_size(head.fragments);
  head.total_bytes = place_fragments(head.fragments, head.head_bytes);
  return head;
}

/// Writes a shard of zeros and returns the file.
std::filesystem::path write_file(const testing_support::ScratchFolder& scratch,
                                 const ShardHead& head, const std::string& payload) {
  const auto store = ObjectStore::open("file:" + scratch.path().string());
  std::vector<const std::byte*> data;
  for (const Fragment& fragment : head.fragments) {
    EXPECT_LE(fragment.bytes, payload.size());
    data.push_back(std::as_bytes(std::span(payload)).data());
  }
  write_shard(*store, "shard.h5", head, data);
  return scratch.path() / "shard.h5";
}

/// Standard output of a tool; nothing if it is not installed. Fails the test if the tool does.
std::optional<std::string> output_of(const std::string& tool, const std::string& arguments) {
  if (std::system(("command -v " + tool + " > /dev/null").c_str()) != 0) return std::nullopt;
  FILE* pipe = popen((tool + " " + arguments + " 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer;
  while (const std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), got);
  }
  EXPECT_EQ(pclose(pipe), 0) << text;
  return text;
}

TEST(ShardHead, IsReadBack) {
  ShardHead head = head_of({{"a/b", StateKind::param, DType::f32, {3, 5}},
                            {"a", StateKind::param, DType::bf16, {}},
                            {"a", StateKind::master, DType::f32, {}},
                            {"u", StateKind::param, DType::u8, {9}},
                            {"i", StateKind::param, DType::i64, {2}},
                            {"h", StateKind::param, DType::f16, {2}}});
  for (Fragment& fragment : head.fragments) fragment.crcs = {0xe3069283};
  const ShardHead again = parse_head(build_head(head), head.total_bytes);
  EXPECT_EQ(again.job, head.job);
  EXPECT_EQ(again.plan_sha256, head.plan_sha256);
  ASSERT_EQ(again.fragments.size(), head.fragments.size());
  for (std::size_t i = 0; i < head.fragments.size(); ++i) {
    const Fragment& a = again.fragments[i];
    const Fragment& b = head.fragments[i];
    EXPECT_EQ(a.path, b.path);
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(a.gshape, b.gshape);
    EXPECT_EQ(a.box, b.box);
    EXPECT_EQ(a.flat, b.flat);
    EXPECT_EQ(a.offset, b.offset);
    EXPECT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(a.crcs, b.crcs);
  }
}

TEST(ShardHead, HoldsAllMetadataOfManyDatasetsInFrontOfTheData) {
  std::vector<PlanTensor> tensors;
  for (int i = 0; i < 1000; ++i) {
    tensors.push_back({"transformer.h." + std::to_string(i) + ".mlp.c_fc.weight",
                       StateKind::param,
                       DType::f32,
                       {1024}});
  }
  ShardHead head = head_of(tensors);
  for (Fragment& fragment : head.fragments) fragment.crcs = {1};
  EXPECT_LT(head.head_bytes, 1000U * 700U);
  EXPECT_EQ(build_head(head).size(), head.head_bytes);
  EXPECT_EQ(parse_head(build_head(head), head.total_bytes).fragments.size(), 1000U);
}

TEST(ShardHead, HoldsAsManyChecksumsAsAnAttributeTakes) {
  // 16,000 blocks of 4 MiB; the payload itself is never made.
  ShardHead head =
      head_of({{"large", StateKind::param, DType::f32, {kBlockLimit, kBlockBytes / 4}}});
  ASSERT_EQ(head.fragments.size(), 1U);
  for (std::uint32_t i = 0; i < kBlockLimit; ++i) head.fragments[0].crcs.push_back(i);
  const ShardHead again = parse_head(build_head(head), head.total_bytes);
  EXPECT_EQ(again.fragments[0].crcs, head.fragments[0].crcs);
}

TEST(ShardHead, RefusesAnotherFileSize) {
  ShardHead head = head_of({{"a", StateKind::param, DType::f32, {4}}});
  head.fragments[0].crcs = {1};
  EXPECT_THROW(parse_head(build_head(head), head.total_bytes + 1), DataError);
  EXPECT_THROW(parse_head(build_head(head), head.total_bytes - 1), DataError);
}

TEST(ShardHead, RefusesBytesThatAreNoHead) {
  EXPECT_THROW(parse_head(std::vector<std::byte>(65'536), 65'536), DataError);
}

TEST(ShardHead, OfAnEmptyShardIsAFileOfItsOwn) {
  const testing_support::ScratchFolder scratch;
  const ShardHead head = head_of({});
  EXPECT_EQ(head.total_bytes, head.head_bytes);
  EXPECT_TRUE(parse_head(build_head(head), head.total_bytes).fragments.empty());
  const auto dump = output_of("h5dump", "'" + write_file(scratch, head, "").string() + "'");
  if (!dump) GTEST_SKIP() << "h5dump is not installed";
  for (const char* group :
       {"\"param\"", "\"optim\"", "\"master\"", "\"m\"", "\"v\"", "\"state\""}) {
    EXPECT_THAT(*dump, HasSubstr(std::string("GROUP ") + group));
  }
}

TEST(ShardFile, IsReadByH5dumpWithItsAttributes) {
  const testing_support::ScratchFolder scratch;
  const ShardHead head = head_of({{"x//y", StateKind::param, DType::f32, {2, 2}}});
  const float values[] = {1.5F, -2.0F, 0.25F, 8.0F};
  const std::string payload(reinterpret_cast<const char*>(values), sizeof values);
  const auto file = write_file(scratch, head, payload);
  const auto dump = output_of("h5dump", "'" + file.string() + "'");
  if (!dump) GTEST_SKIP() << "h5dump is not installed";
  for (const char* text :
       {"DATASET \"x%2F%2Fy\"", "H5T_IEEE_F32LE", "1.5, -2", "0.25, 8", "ATTRIBUTE \"ls_box\"",
        "0, 0, 2, 2", "ATTRIBUTE \"ls_format\"", "lockstep-checkpoint", "H5T_STR_NULLPAD",
        "H5T_CSET_UTF8", "ATTRIBUTE \"ls_complete\"", "ATTRIBUTE \"ls_kind\""}) {
    EXPECT_THAT(*dump, HasSubstr(text));
  }
}

TEST(ShardFile, HasBf16ValuesThatOtherReadersUnderstand) {
  const std::array<std::uint16_t, 8> bits = {0x3F80, 0x3F95, 0x8000, 0x4049,
                                             0x7F7F, 0x0001, 0x7FC0, 0x7F80};
  const std::string payload(reinterpret_cast<const char*>(bits.data()), sizeof bits);
  const testing_support::ScratchFolder scratch;
  const auto file =
      write_file(scratch, head_of({{"b", StateKind::param, DType::bf16, {8}}}), payload);
  // Through the HDF5 library, which knows nothing of bf16: as f32 and as they are.
  std::array<float, 8> values = {};
  std::array<std::uint16_t, 8> raw = {};
  {
    const Hdf5Session session;
    const Hdf5Id opened =
        owned(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "open");
    const Hdf5Id dataset = owned(H5Dopen2(opened.get(), "/param/b", H5P_DEFAULT), H5Dclose, "open");
    const Hdf5Id type = owned(H5Dget_type(dataset.get()), H5Tclose, "type");
    check(H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
          "read");
    check(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, raw.data()), "read");
    EXPECT_LE(H5Tequal(type.get(), file_type(DType::f16).get()), 0) << "f16 and bf16 confused";
  }
  EXPECT_EQ(raw, bits);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const float widened = std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16);
    if (std::isnan(widened)) {
      EXPECT_TRUE(std::isnan(values[i]));
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(widened))
          << i;
    }
  }
}

}  // namespace
}  // namespace lockstep
