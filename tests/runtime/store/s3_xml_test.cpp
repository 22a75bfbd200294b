// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "runtime/store/s3/errors.h"
#include "runtime/store/s3/xml.h"

namespace lockstep::s3 {
namespace {

constexpr const char* kList =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
    "<Name>b</Name><IsTruncated>true</IsTruncated>"
    "<Contents><Key>a&amp;b%2F&#x6a21;</Key><Size>7</Size><ETag>&quot;e&quot;</ETag></Contents>"
    "<Contents><Key><![CDATA[<k>]]></Key><Size>8</Size></Contents><Prefix/>"
    "</ListBucketResult>\n";

TEST(S3Xml, ReadsAnAnswer) {
  const auto root = parse_xml(kList);
  ASSERT_TRUE(root);
  EXPECT_EQ(root->name, "ListBucketResult");
  EXPECT_EQ(root->text_of("IsTruncated"), "true");
  EXPECT_EQ(root->text_of("Prefix"), "");
  EXPECT_EQ(root->find("NextContinuationToken"), nullptr);
  ASSERT_EQ(root->children.size(), 5U);
  EXPECT_EQ(root->children[2].text_of("Key"), "a&b%2F\xe6\xa8\xa1");
  EXPECT_EQ(root->children[2].text_of("ETag"), "\"e\"");
  EXPECT_EQ(root->children[3].text_of("Key"), "<k>");
}

TEST(S3Xml, AllowsTheBlanksThatAStoreSendsWhileItWorks) {
  const auto root = parse_xml(" \n \n<Error><Code>InternalError</Code></Error>");
  ASSERT_TRUE(root);
  EXPECT_EQ(root->name, "Error");
  EXPECT_EQ(root->text_of("Code"), "InternalError");
}

TEST(S3Xml, RefusesAnAnswerThatIsCutOffAnywhere) {
  const std::string whole = kList;
  for (std::size_t size = 0; size + 1 < whole.size(); ++size) {  // but for the last line's end
    EXPECT_FALSE(parse_xml(whole.substr(0, size))) << size;
  }
}

TEST(S3Xml, RefusesWhatIsDamaged) {
  for (const char* text :
       {"<a></b>", "<a/><b/>", "<a>&unknown;</a>", "<a>&#xD800;</a>", "<a>&#0;</a>",
        "<a>&#99999999999;</a>", "<a b></a>", "<a b=c></a>", "text", "<>", "<a>x</a>y",
        "<x:a></y:a>", "<!DOCTYPE a [<!ENTITY e \"x\">]><a>&e;</a>"}) {
    EXPECT_FALSE(parse_xml(text)) << text;
  }
}

TEST(S3Xml, SurvivesRandomMutationsWithoutACrash) {
  std::mt19937 random(20261203);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text =
        i % 2 == 0 ? kList : "<Error><Code>SlowDown</Code><Message>m</Message></Error>";
    for (unsigned change = 0; change <= random() % 4; ++change) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
      }
      if (text.empty()) text = "<";
    }
    const auto root = parse_xml(text);
    if (!root) ++refused;
    Failure failure;
    read_error_body(text, failure);
    is_complete_result(text, failure);
  }
  EXPECT_GT(refused, 5'000);
  EXPECT_LT(refused, 20'000);
}

TEST(S3Xml, RefusesDeepNestingAndReadsALongAnswer) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  EXPECT_FALSE(parse_xml(deep));
  std::string wide = "<r>";
  for (int i = 0; i < 100000; ++i) wide += "<k>" + std::to_string(i) + "</k>";
  const auto root = parse_xml(wide + "</r>");
  ASSERT_TRUE(root);
  EXPECT_EQ(root->children.size(), 100000U);
  EXPECT_EQ(root->children.back().text, "99999");
}

}  // namespace
}  // namespace lockstep::s3
