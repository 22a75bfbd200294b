// SPDX-License-Identifier: Apache-2.0
#include "lockstep/optim/decay.h"

#include <gtest/gtest.h>

namespace lockstep::optim {
namespace {

TEST(Glob, MatchesWholeNamesOnly) {
  EXPECT_TRUE(matches_glob("abc", "abc"));
  EXPECT_FALSE(matches_glob("abc", "abcd"));
  EXPECT_FALSE(matches_glob("bc", "abc"));
  EXPECT_TRUE(matches_glob("", ""));
  EXPECT_FALSE(matches_glob("", "a"));
}

TEST(Glob, LetsAStarCrossDotsAndBeEmpty) {
  EXPECT_TRUE(matches_glob("*.bias", "transformer.h.0.attn.c_attn.bias"));
  EXPECT_TRUE(matches_glob("a*", "a"));
  EXPECT_TRUE(matches_glob("**", ""));
  EXPECT_FALSE(matches_glob("*.bias", "bias"));
}

TEST(Glob, TriesEveryPlaceForTheTextAfterAStar) {
  EXPECT_TRUE(matches_glob("*ab*ab", "aabxabab"));
  EXPECT_TRUE(matches_glob("a*b?d", "abcbbcd"));
  EXPECT_FALSE(matches_glob("*ab*abc", "ababab"));
}

TEST(Glob, TakesExactlyOneCharacterForAQuestionMark) {
  EXPECT_TRUE(matches_glob("ln_?", "ln_f"));
  EXPECT_FALSE(matches_glob("ln_?", "ln_"));
  EXPECT_FALSE(matches_glob("ln_?", "ln_10"));
}

TEST(NoDecay, LeavesNormsBiasesAndPositionsAloneByDefault) {
  const NoDecay none(kDefaultNoDecay);
  for (const char* name :
       {"transformer.wpe.weight", "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
        "transformer.h.11.ln_2.weight", "transformer.h.0.attn.c_attn.bias",
        "transformer.h.0.attn.c_proj.bias", "transformer.h.0.mlp.c_fc.bias",
        "transformer.h.0.mlp.c_proj.bias", "transformer.ln_f.weight", "transformer.ln_f.bias"}) {
    EXPECT_TRUE(none.matches(name)) << name;
  }
  for (const char* name : {"transformer.wte.weight", "transformer.h.0.attn.c_attn.weight",
                           "transformer.h.0.attn.c_proj.weight", "transformer.h.0.mlp.c_fc.weight",
                           "transformer.h.0.mlp.c_proj.weight"}) {
    EXPECT_FALSE(none.matches(name)) << name;
  }
}

TEST(NoDecay, ReadsAListWithBlanksAndAnEmptyOne) {
  const NoDecay two(" *.bias , head.* ,");
  EXPECT_TRUE(two.matches("x.bias"));
  EXPECT_TRUE(two.matches("head.weight"));
  EXPECT_FALSE(two.matches("x.weight"));
  EXPECT_FALSE(NoDecay("").matches("x.bias"));
}

}  // namespace
}  // namespace lockstep::optim
