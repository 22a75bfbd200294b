// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/reshard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Fragment box_of(std::vector<std::uint64_t> gshape, Box box, std::optional<FlatRun> flat = {}) {
  Fragment fragment;
  fragment.gshape = std::move(gshape);
  fragment.box = std::move(box);
  fragment.flat = flat;
  return fragment;
}

/// The same by the definition, element by element.
std::vector<CopyRun> by_definition(const Fragment& fragment, const Box& target) {
  std::vector<CopyRun> runs;
  const std::uint64_t first = fragment.flat ? fragment.flat->start : 0;
  for (std::uint64_t i = 0; i < elements_of(fragment); ++i) {
    std::uint64_t rest = first + i;
    std::vector<std::uint64_t> at(fragment.gshape.size());
    for (std::size_t d = at.size(); d-- > 0;) {
      at[d] = fragment.box.start[d] + rest % fragment.box.count[d];
      rest /= fragment.box.count[d];
    }
    std::uint64_t number = 0;
    bool inside = true;
    for (std::size_t d = 0; d < at.size(); ++d) {
      inside = inside && at[d] >= target.start[d] && at[d] < target.start[d] + target.count[d];
      number = number * target.count[d] + (at[d] - target.start[d]);
    }
    if (inside) runs.push_back({.source = i, .target = number, .length = 1});
  }
  return runs;
}

std::vector<CopyRun> single_elements(const std::vector<CopyRun>& runs) {
  std::vector<CopyRun> elements;
  for (const CopyRun& run : runs) {
    for (std::uint64_t i = 0; i < run.length; ++i) {
      elements.push_back({.source = run.source + i, .target = run.target + i, .length = 1});
    }
  }
  return elements;
}

TEST(CopyRuns, OfAWholeTensorIsOneRun) {
  const Fragment whole = box_of({3, 4, 5}, whole_box({3, 4, 5}));
  EXPECT_THAT(copy_runs(whole, whole_box({3, 4, 5})),
              ElementsAre(CopyRun{.source = 0, .target = 0, .length = 60}));
}

TEST(CopyRuns, OfAScalarIsItsElement) {
  EXPECT_THAT(copy_runs(box_of({}, {}), {}),
              ElementsAre(CopyRun{.source = 0, .target = 0, .length = 1}));
}

TEST(CopyRuns, OfAFlatRunStartsWithinTheBox) {
  const Fragment run =
      box_of({10, 4}, {.start = {2, 0}, .count = {3, 4}}, FlatRun{.start = 5, .length = 4});
  EXPECT_THAT(copy_runs(run, whole_box({10, 4})),
              ElementsAre(CopyRun{.source = 0, .target = 13, .length = 4}));
}

TEST(CopyRuns, OfAColumnSplitAreOneRunARow) {
  const Fragment right = box_of({2, 6}, {.start = {0, 3}, .count = {2, 3}});
  EXPECT_THAT(copy_runs(right, whole_box({2, 6})),
              ElementsAre(CopyRun{.source = 0, .target = 3, .length = 3},
                          CopyRun{.source = 3, .target = 9, .length = 3}));
  EXPECT_THAT(copy_runs(right, {.start = {0, 0}, .count = {2, 3}}), IsEmpty());
}

TEST(CopyRuns, AgreeWithTheDefinitionOnRandomBoxesAndRuns) {
  std::mt19937 random(3);
  const auto box_in = [&](const std::vector<std::uint64_t>& shape) {
    Box box;
    for (const std::uint64_t size : shape) {
      const std::uint64_t start = random() % 2 == 0 ? 0 : random() % size;
      box.start.push_back(start);
      box.count.push_back(random() % 2 == 0 ? size - start : random() % (size - start + 1));
    }
    return box;
  };
  std::size_t elements = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::vector<std::uint64_t> shape(random() % 5);
    for (std::uint64_t& size : shape) size = 1 + random() % 5;
    Fragment fragment = box_of(shape, box_in(shape));
    const std::uint64_t size = elements_of(fragment.box);
    if (random() % 2 == 0) {
      const std::uint64_t start = random() % (size + 1);
      fragment.flat = FlatRun{.start = start, .length = random() % (size - start + 1)};
    }
    const Box target = box_in(shape);
    const auto runs = copy_runs(fragment, target);
    EXPECT_EQ(single_elements(runs), by_definition(fragment, target));
    for (std::size_t r = 1; r < runs.size(); ++r) {
      EXPECT_LE(runs[r - 1].source + runs[r - 1].length, runs[r].source);
    }
    elements += single_elements(runs).size();
  }
  EXPECT_GT(elements, 5'000U);
}

TEST(CopyRuns, AreClippedToAFlatPartOfTheTarget) {
  const std::vector<CopyRun> runs = {{.source = 10, .target = 0, .length = 4},
                                     {.source = 20, .target = 6, .length = 4}};
  EXPECT_THAT(clipped(runs, {.start = 0, .length = 10}), ElementsAre(runs[0], runs[1]));
  EXPECT_THAT(clipped(runs, {.start = 3, .length = 4}),
              ElementsAre(CopyRun{.source = 13, .target = 0, .length = 1},
                          CopyRun{.source = 20, .target = 3, .length = 1}));
  EXPECT_THAT(clipped(runs, {.start = 4, .length = 2}), IsEmpty());
  EXPECT_THAT(clipped(runs, {.start = 0, .length = 0}), IsEmpty());
}

TEST(Cover, IsWholeWhenRunsTouch) {
  EXPECT_EQ(
      cover_fault(
          {{.source = 0, .target = 4, .length = 2}, {.source = 9, .target = 0, .length = 4}}, 6),
      "");
  EXPECT_EQ(cover_fault({}, 0), "");
}

TEST(Cover, NamesAHole) {
  EXPECT_THAT(cover_fault({}, 6), HasSubstr("elements 0 to 5"));
  EXPECT_THAT(
      cover_fault(
          {{.source = 0, .target = 0, .length = 2}, {.source = 0, .target = 4, .length = 2}}, 6),
      HasSubstr("elements 2 to 3"));
  EXPECT_THAT(cover_fault({{.source = 0, .target = 0, .length = 5}}, 6),
              HasSubstr("elements 5 to 5"));
}

TEST(Cover, NamesAnOverlap) {
  EXPECT_THAT(
      cover_fault(
          {{.source = 0, .target = 0, .length = 4}, {.source = 0, .target = 3, .length = 3}}, 6),
      HasSubstr("element 3 is in two datasets"));
}

}  // namespace
}  // namespace lockstep
