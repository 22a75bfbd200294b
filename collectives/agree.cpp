// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/agree.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::size_t to_size(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

std::vector<std::string> gather_text(Communicator& group, std::string_view text) {
  const Tensor length(Device{}, {1}, DType::i64);
  const Tensor lengths(Device{}, {group.size()}, DType::i64);
  *length.as<std::int64_t>() = static_cast<std::int64_t>(text.size());
  group.host().all_gather(length, lengths).wait();
  const std::int64_t* each = lengths.as<std::int64_t>();
  const std::int64_t longest = *std::max_element(each, each + group.size());

  const Tensor mine = Tensor::zeros(Device{}, {longest}, DType::u8);
  const Tensor all(Device{}, {group.size() * longest}, DType::u8);
  std::copy(text.begin(), text.end(), static_cast<char*>(mine.data()));
  group.host().all_gather(mine, all).wait();
  std::vector<std::string> texts;
  texts.reserve(to_size(group.size()));
  for (int rank = 0; rank < group.size(); ++rank) {
    texts.emplace_back(static_cast<const char*>(all.data()) + to_size(rank * longest),
                       to_size(each[rank]));
  }
  return texts;
}

std::string broadcast_text(Communicator& group, std::string_view text, int root) {
  const Tensor length(Device{}, {1}, DType::i64);
  *length.as<std::int64_t>() = static_cast<std::int64_t>(text.size());
  group.host().broadcast(length, root).wait();
  const Tensor bytes(Device{}, {*length.as<std::int64_t>()}, DType::u8);
  if (group.rank() == root) std::copy(text.begin(), text.end(), static_cast<char*>(bytes.data()));
  group.host().broadcast(bytes, root).wait();
  return {static_cast<const char*>(bytes.data()), bytes.bytes()};
}

bool any(Communicator& group, bool mine) {
  const Tensor answer(Device{}, {1}, DType::i64);
  *answer.as<std::int64_t>() = mine ? 1 : 0;
  group.host().all_reduce(answer, ReduceOp::max).wait();
  return *answer.as<std::int64_t>() != 0;
}

void agree(Communicator& group, std::string_view what, const std::function<void()>& body) {
  // A report is empty, or outcome, NUL, hint, NUL, text.
  std::string report;
  std::exception_ptr mine;
  try {
    body();
  } catch (const std::exception& error) {
    mine = std::current_exception();
    const auto* ours = dynamic_cast<const Error*>(&error);
    report = std::to_string(static_cast<int>(outcome_of(error))) + '\0' +
             (ours ? ours->hint() : std::string()) + '\0' + error.what();
  }
  const std::vector<std::string> reports = gather_text(group, report);
  const auto first = std::find_if(reports.begin(), reports.end(),
                                  [](const std::string& text) { return !text.empty(); });
  if (first == reports.end()) return;
  const int rank = static_cast<int>(first - reports.begin());
  if (rank == group.rank()) std::rethrow_exception(mine);
  const std::size_t hint = first->find('\0') + 1;
  const std::size_t text = first->find('\0', hint) + 1;
  throw CommError("rank " + std::to_string(rank) + " failed in " + std::string(what) + ": " +
                      first->substr(text),
                  first->substr(hint, text - 1 - hint),
                  static_cast<Outcome>(std::stoi(first->substr(0, hint - 1))), rank);
}

}  // namespace lockstep
