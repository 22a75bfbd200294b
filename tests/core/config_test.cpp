// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

Config make() {
  return Config(
      {{.name = "batch.global",
        .type = ConfigType::integer,
        .default_value = "16",
        .help = "",
        .min = 1},
       {.name = "batch.micro",
        .type = ConfigType::integer,
        .default_value = "4",
        .help = "",
        .min = 1},
       {.name = "seed", .type = ConfigType::unsigned_integer, .default_value = "0", .help = ""},
       {.name = "allow_new_bits",
        .type = ConfigType::boolean,
        .default_value = "false",
        .help = ""},
       {.name = "optim.lr",
        .type = ConfigType::real,
        .default_value = "3e-4",
        .help = "",
        .min = 0},
       {.name = "reduction",
        .default_value = "invariant",
        .help = "",
        .choices = {"fast", "ordered", "invariant"}}});
}

class ConfigFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_.string();
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                ("lockstep_config_" + std::to_string(::getpid()) + ".toml");
};

std::string what_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "no error";
}

TEST_F(ConfigFile, YieldsToVariablesAndBothYieldToFlags) {
  Config config = make();
  config.read_arguments({"--batch.micro", "8"});
  config.read_environment({{"LOCKSTEP_BATCH_MICRO", "2"}, {"LOCKSTEP_SEED", "5"}}, {});
  config.read_file(write("seed = 9\n[batch]\nglobal = 32\nmicro = 1\n"));
  config.set_preset("p", "optim.lr", "0.5");
  EXPECT_EQ(config.integer("batch.micro"), 8);
  EXPECT_EQ(config.unsigned_integer("seed"), 5U);
  EXPECT_EQ(config.integer("batch.global"), 32);
  EXPECT_EQ(config.real("optim.lr"), 0.5);
  EXPECT_FALSE(config.given("optim.lr"));
  EXPECT_TRUE(config.given("batch.global"));
  EXPECT_EQ(config.source("batch.micro"), "flag --batch.micro");
  EXPECT_EQ(config.source("seed"), "variable LOCKSTEP_SEED");
  EXPECT_EQ(config.source("batch.global"), path_.string() + ":3");
  EXPECT_EQ(config.source("reduction"), "default");
}

TEST_F(ConfigFile, NamesFileAndLineOfAnUnknownKeyAndOfABadValue) {
  Config config = make();
  EXPECT_THAT(what_of([&] { config.read_file(write("\n[batch]\nmicor = 1\n")); }),
              testing::AllOf(HasSubstr(":3"), HasSubstr("batch.micor"), HasSubstr("batch.micro?")));
  EXPECT_THAT(what_of([&] { config.read_file(write("[batch]\nmicro = 0\n")); }),
              testing::AllOf(HasSubstr(":2"), HasSubstr("at least 1")));
  EXPECT_THAT(what_of([&] { config.read_file(write("a = = 1")); }), HasSubstr(":1"));
  EXPECT_THAT(what_of([&] { config.read_file("/does/not/exist.toml"); }), HasSubstr("cannot read"));
}

TEST(Config, AcceptsBothSpellingsOfAFlag) {
  Config config = make();
  config.read_arguments({"--batch-micro=2", "--allow-new-bits", "true", "--optim.lr", "1e-3"});
  EXPECT_EQ(config.integer("batch.micro"), 2);
  EXPECT_TRUE(config.boolean("allow_new_bits"));
  EXPECT_EQ(config.real("optim.lr"), 1e-3);
}

TEST(Config, SuggestsTheNearestFlagAndVariable) {
  EXPECT_THAT(what_of([] {
                make().read_arguments({"--batch.mirco", "1"});
              }),
              testing::AllOf(HasSubstr("--batch.mirco"), HasSubstr("--batch.micro?")));
  EXPECT_THAT(what_of([] {
                make().read_environment({{"LOCKSTEP_SEDE", "1"}}, {});
              }),
              HasSubstr("LOCKSTEP_SEED?"));
  EXPECT_THAT(what_of([] {
                make().read_arguments({"--reduction", "invarant"});
              }),
              HasSubstr("invariant?"));
}

TEST(Config, SaysThatAKeyComesInALaterVersionHoweverItIsSpelled) {
  Config config({{.name = "seed"}}, {"data.cache_bytes"});
  const auto later = HasSubstr("is not in this version");
  EXPECT_THAT(what_of([&] { config.read_arguments({"--data.cache_bytes", "1"}); }), later);
  EXPECT_THAT(what_of([&] { config.read_arguments({"--data-cache-bytes=1"}); }), later);
  EXPECT_THAT(what_of([&] {
                config.read_environment({{"LOCKSTEP_DATA_CACHE_BYTES", "1"}}, {});
              }),
              later);
}

TEST(Config, LeavesReservedAndForeignVariablesAlone) {
  Config config = make();
  config.read_environment({{"LOCKSTEP_BIN", "x"}, {"LOCKSTEP_TEST_A", "x"}, {"PATH", "x"}},
                          {"LOCKSTEP_BIN", "LOCKSTEP_TEST_*"});
  EXPECT_FALSE(config.given("seed"));
}

TEST(Config, RefusesBadValuesWithTheirSource) {
  const std::vector<std::vector<std::string>> bad = {{"--batch.micro", "0"},
                                                     {"--batch.micro", "1.5"},
                                                     {"--batch.micro", ""},
                                                     {"--seed", "-1"},
                                                     {"--seed", "18446744073709551616"},
                                                     {"--allow_new_bits", "yes"},
                                                     {"--optim.lr", "nan"},
                                                     {"--optim.lr", "-1"},
                                                     {"--optim.lr", "inf"},
                                                     {"--reduction", "Fast"}};
  for (const auto& arguments : bad) {
    EXPECT_THAT(what_of([&] { make().read_arguments(arguments); }),
                HasSubstr("flag " + arguments[0]))
        << arguments[1];
  }
  EXPECT_EQ(what_of([] { make().read_arguments({"--seed", "18446744073709551615"}); }), "no error");
}

TEST(Config, TakesAWordInPlaceOfANumberWhereTheKeyHasOne) {
  const auto read = [](const std::string& value) {
    Config config({{.name = "every",
                    .type = ConfigType::integer,
                    .default_value = "3",
                    .help = "",
                    .min = 0,
                    .choices = {"auto"}}});
    config.read_arguments({"--every", value});
    return config;
  };
  EXPECT_EQ(read("auto").word("every"), "auto");
  EXPECT_EQ(read("7").word("every"), "");
  EXPECT_EQ(read("7").integer("every"), 7);
  EXPECT_THAT(what_of([&] { read("auto7"); }), HasSubstr("give an integer or auto"));
  EXPECT_THAT(what_of([&] { read("-1"); }), HasSubstr("out of range"));
}

TEST(Config, RefusesAFlagTwiceAFlagWithoutAValueAndALooseWord) {
  EXPECT_THAT(what_of([] {
                make().read_arguments({"--seed", "1", "--seed", "2"});
              }),
              HasSubstr("twice"));
  EXPECT_THAT(what_of([] { make().read_arguments({"--seed"}); }), HasSubstr("seed"));
  EXPECT_THAT(what_of([] { make().read_arguments({"steps"}); }), HasSubstr("steps"));
}

TEST(Config, ListsEveryKeyInByteOrder) {
  const auto all = make().resolved();
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(all.front().first, "allow_new_bits");
  EXPECT_EQ(all.back().first, "seed");
}

}  // namespace
}  // namespace lockstep
