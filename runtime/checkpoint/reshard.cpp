// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/reshard.h"

#include <algorithm>

namespace lockstep {
namespace {

/// A source box and a target box of one tensor, with the trailing dimensions that both hold whole
/// merged into one, so that rows are as long as they can be.
struct Boxes {
  Box source;
  Box target;
};

Boxes merged(std::vector<std::uint64_t> shape, Box source, Box target) {
  if (shape.empty()) return {{.start = {0}, .count = {1}}, {.start = {0}, .count = {1}}};
  const auto whole = [&](const Box& box) { return box.count.back() == shape.back(); };
  while (shape.size() > 1 && whole(source) && whole(target)) {
    const std::uint64_t width = shape.back();
    shape.pop_back();
    shape.back() *= width;
    for (Box* box : {&source, &target}) {
      box->start.pop_back();
      box->count.pop_back();
      box->start.back() *= width;
      box->count.back() *= width;
    }
  }
  return {std::move(source), std::move(target)};
}

void append(std::vector<CopyRun>& runs, CopyRun run) {
  if (!runs.empty()) {
    CopyRun& last = runs.back();
    if (last.source + last.length == run.source && last.target + last.length == run.target) {
      last.length += run.length;
      return;
    }
  }
  runs.push_back(run);
}

/// Row-major number, in the target, of the row that is row `row` of the source; false if it is
/// outside.
bool find_row(const Boxes& boxes, std::uint64_t row, std::uint64_t* target_row) {
  const std::size_t outer = boxes.source.count.size() - 1;
  std::uint64_t number = 0;
  std::uint64_t stride = 1;
  for (std::size_t d = outer; d-- > 0;) {
    const std::uint64_t at = boxes.source.start[d] + row % boxes.source.count[d];
    row /= boxes.source.count[d];
    const std::uint64_t start = boxes.target.start[d];
    if (at < start || at - start >= boxes.target.count[d]) return false;
    number += (at - start) * stride;
    stride *= boxes.target.count[d];
  }
  *target_row = number;
  return true;
}

}  // namespace

std::vector<CopyRun> copy_runs(const Fragment& fragment, const Box& target) {
  const std::uint64_t first = fragment.flat ? fragment.flat->start : 0;
  const std::uint64_t end = first + elements_of(fragment);
  if (first == end || elements_of(target) == 0) return {};
  const Boxes boxes = merged(fragment.gshape, fragment.box, target);
  const std::uint64_t width = boxes.source.count.back();
  const std::uint64_t source_start = boxes.source.start.back();
  const std::uint64_t target_start = boxes.target.start.back();
  const std::uint64_t target_width = boxes.target.count.back();

  std::vector<CopyRun> runs;
  for (std::uint64_t row = first / width; row * width < end; ++row) {
    std::uint64_t target_row = 0;
    if (!find_row(boxes, row, &target_row)) continue;
    // Columns of the whole tensor that the run, the source and the target share in this row.
    const std::uint64_t from = std::max(first, row * width) - row * width + source_start;
    const std::uint64_t to = std::min(end, (row + 1) * width) - row * width + source_start;
    const std::uint64_t low = std::max(from, target_start);
    const std::uint64_t high = std::min(to, target_start + target_width);
    if (low >= high) continue;
    append(runs, {.source = row * width + (low - source_start) - first,
                  .target = target_row * target_width + (low - target_start),
                  .length = high - low});
  }
  return runs;
}

std::vector<CopyRun> clipped(std::vector<CopyRun> runs, FlatRun part) {
  for (CopyRun& run : runs) {
    const std::uint64_t begin = std::max(run.target, part.start);
    const std::uint64_t end = std::min(run.target + run.length, part.start + part.length);
    const std::uint64_t skipped = begin - run.target;
    run = {.source = run.source + skipped,
           .target = begin - part.start,
           .length = end > begin ? end - begin : 0};
  }
  std::erase_if(runs, [](const CopyRun& run) { return run.length == 0; });
  return runs;
}

std::string cover_fault(std::vector<CopyRun> runs, std::uint64_t elements) {
  std::sort(runs.begin(), runs.end(),
            [](const CopyRun& a, const CopyRun& b) { return a.target < b.target; });
  std::uint64_t end = 0;
  for (const CopyRun& run : runs) {
    if (run.target > end) {
      return "no shard holds elements " + std::to_string(end) + " to " +
             std::to_string(run.target - 1);
    }
    if (run.target < end) return "element " + std::to_string(run.target) + " is in two datasets";
    end = run.target + run.length;
  }
  if (end != elements) {
    return "no shard holds elements " + std::to_string(end) + " to " + std::to_string(elements - 1);
  }
  return {};
}

}  // namespace lockstep
