// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/mpi_transfers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>

namespace lockstep {
namespace {

// Counts the transfers of a group among those under way. Where they are dropped, by a failure of
// their own or of another group, MPI still knows of them.
struct UnderWay {
  UnderWay(MpiState& counted, std::size_t in_lane) : state(counted), lane(in_lane) {
    ++state.under_way.at(lane);
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  ~UnderWay() {
    --state.under_way.at(lane);
    if (!complete) state.broken = true;
  }

  MpiState& state;
  std::size_t lane;
  bool complete = false;
};

}  // namespace

void check_mpi(int code, const char* call, const Wait& wait) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  MPI_Error_string(code, text.data(), &size);
  throw CommError(wait.operation() + ": " + call + ": " + text.data(),
                  "the network or a peer failed; start again from the last checkpoint");
}

MpiTransfers::MpiTransfers(std::shared_ptr<MpiState> state, const std::vector<int>& ranks, int tag,
                           Lane lane)
    : state_(std::move(state)), tag_(tag), lane_(static_cast<std::size_t>(lane)) {
  for (const int rank : ranks) {
    routes_.push_back({.rank = rank, .direction = Direction::out, .waiting = {}});
    routes_.push_back({.rank = rank, .direction = Direction::in, .waiting = {}});
  }
}

void MpiTransfers::send(int peer, const std::byte* data, std::size_t bytes) {
  // MPI reads it only; one type for both directions keeps the routes alike.
  auto* readable = const_cast<std::byte*>(data);
  if (bytes > 0) {
    routes_[2 * static_cast<std::size_t>(peer)].waiting.push_back({readable, bytes});
  }
}

void MpiTransfers::receive(int peer, std::byte* data, std::size_t bytes) {
  if (bytes > 0) routes_[2 * static_cast<std::size_t>(peer) + 1].waiting.push_back({data, bytes});
}

int MpiTransfers::window() const noexcept {
  const auto first = state_->under_way.begin();
  const auto own = first + static_cast<std::ptrdiff_t>(lane_);
  return std::any_of(first, own, [](int groups) { return groups > 0; }) ? 1 : kWindow;
}

void MpiTransfers::post(Route& route, std::size_t index, const Wait& wait) {
  while (route.in_flight < window() && !route.waiting.empty()) {
    Range& range = route.waiting.front();
    const std::size_t bytes = std::min(range.bytes, kSegmentBytes);
    MPI_Request request = MPI_REQUEST_NULL;
    const int count = static_cast<int>(bytes);
    if (route.direction == Direction::out) {
      check_mpi(
          MPI_Isend(range.data, count, MPI_BYTE, route.rank, tag_, state_->communicator, &request),
          "MPI_Isend", wait);
    } else {
      check_mpi(
          MPI_Irecv(range.data, count, MPI_BYTE, route.rank, tag_, state_->communicator, &request),
          "MPI_Irecv", wait);
    }
    requests_.push_back(request);
    // run() tests it until it is done.
    // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): it sees no wait in this function
    request_of_.push_back(index);
    ++route.in_flight;
    range.data += bytes;
    range.bytes -= bytes;
    if (range.bytes == 0) route.waiting.pop_front();
  }
}

void MpiTransfers::post_all(const Wait& wait) {
  // Receives first: what arrives then needs no copy inside MPI.
  for (const std::size_t first : {std::size_t{1}, std::size_t{0}}) {
    for (std::size_t i = first; i < routes_.size(); i += 2) post(routes_[i], i, wait);
  }
}

// Whether nothing is left to do.
bool MpiTransfers::advance(Wait& wait) {
  if (requests_.empty()) return true;
  finished_.resize(requests_.size());
  int count = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                         finished_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome", wait);
  if (count <= 0) return false;
  wait.progress();
  finished_.resize(static_cast<std::size_t>(count));
  // From the back, so that what moves into a gap is never one still to be removed.
  std::sort(finished_.begin(), finished_.end(), std::greater<>());
  for (const int done : finished_) {
    const auto at = static_cast<std::size_t>(done);
    const std::size_t index = request_of_[at];
    requests_[at] = requests_.back();
    requests_.pop_back();
    request_of_[at] = request_of_.back();
    request_of_.pop_back();
    --routes_[index].in_flight;
    post(routes_[index], index, wait);
  }
  return requests_.empty();
}

Task MpiTransfers::complete(Wait& wait) {
  if (state_->broken) {
    throw CommError(wait.operation() + ": an earlier operation over MPI has failed",
                    "start again from the last checkpoint");
  }
  std::exception_ptr failure;
  try {
    UnderWay under_way(*state_, lane_);
    post_all(wait);
    co_await wait.until([&] { return advance(wait); });
    under_way.complete = true;
  } catch (const CommError&) {
    failure = std::current_exception();
  }
  if (!failure) co_return;
  // MPI often fails because a peer is gone: the control channel says in a moment which one.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (std::chrono::steady_clock::now() < patience) wait.step();
  std::rethrow_exception(failure);
}

}  // namespace lockstep
