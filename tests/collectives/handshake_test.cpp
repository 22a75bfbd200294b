// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <vector>

#include "support/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

using Fields = std::vector<HandshakeField>;

// What the ranks throw, each with the fields that `of_rank` gives it; one text if all agree.
std::set<std::string> refusals(int ranks, const std::function<Fields(int)>& of_rank) {
  std::mutex mutex;
  std::set<std::string> texts;
  testing_support::run_ranks(ranks, [&](Communicator& group) {
    std::string text;
    try {
      handshake(group, of_rank(group.rank()));
    } catch (const ConfigError& error) {
      text = describe(error);
    }
    const std::lock_guard lock(mutex);
    texts.insert(text);
  });
  return texts;
}

TEST(Handshake, PassesWhereAllRanksAreAlike) {
  const auto texts = refusals(3, [](int) {
    return Fields{{"version", "0.1"}, {"seed", ""}, {"parameters", "a b"}};
  });
  EXPECT_EQ(texts, std::set<std::string>{""});
}

TEST(Handshake, NamesTheFieldBothRanksAndBothValuesOnEveryRank) {
  const auto texts = refusals(4, [](int rank) {
    return Fields{{"version", "0.1"}, {"seed", rank == 2 ? "8" : "7"}};
  });
  ASSERT_THAT(texts, SizeIs(1));
  EXPECT_THAT(*texts.begin(), HasSubstr("seed differs: rank 0 has \"7\", rank 2 has \"8\""));
}

TEST(Handshake, NamesTheFirstFieldThatDiffers) {
  const auto texts = refusals(2, [](int rank) {
    const std::string value = std::to_string(rank);
    return Fields{{"same", "x"}, {"first", value}, {"second", value}};
  });
  ASSERT_THAT(texts, SizeIs(1));
  EXPECT_THAT(*texts.begin(), AllOf(HasSubstr("first differs"), Not(HasSubstr("second"))));
}

TEST(Handshake, ShortensLongValuesToWhereTheyDiffer) {
  const std::string table(100000, 'p');
  const auto texts = refusals(2, [&](int rank) {
    Fields fields = {{"parameters", table}};
    if (rank == 1) fields[0].value.replace(50000, 4, "qqqq");
    return fields;
  });
  ASSERT_THAT(texts, SizeIs(1));
  EXPECT_THAT(*texts.begin(), AllOf(HasSubstr("at 50000"), HasSubstr("pppqqqq"),
                                    HasSubstr("100000 characters, SHA-256")));
  EXPECT_LT(texts.begin()->size(), 500U);
}

TEST(Handshake, SeesAValueThatIsThePrefixOfAnother) {
  const std::string base(80, 'a');
  const auto texts = refusals(2, [&](int rank) {
    return Fields{{"config", rank == 0 ? base : base + "b"}};
  });
  ASSERT_THAT(texts, SizeIs(1));
  EXPECT_THAT(*texts.begin(), HasSubstr("at 80"));
}

TEST(Handshake, NamesAFieldThatOneRankDoesNotHave) {
  const auto texts = refusals(2, [](int rank) {
    Fields fields = {{"version", "0.1"}};
    if (rank == 1) fields.push_back({"zero", "1"});
    return fields;
  });
  ASSERT_THAT(texts, SizeIs(1));
  EXPECT_THAT(*texts.begin(), HasSubstr("rank 0 has nothing, rank 1 has \"zero\""));
}

}  // namespace
}  // namespace lockstep
