// SPDX-License-Identifier: Apache-2.0
#include "collectives/exit_rendezvous.h"

#include <algorithm>

namespace lockstep {

ExitRendezvous::ExitRendezvous(int size, std::chrono::milliseconds exit_timeout)
    : places_(static_cast<std::size_t>(size)), exit_timeout_(exit_timeout) {}

void ExitRendezvous::arrived(int rank, Outcome outcome, Clock::time_point now) {
  places_[static_cast<std::size_t>(rank)].outcome = outcome;
  if (!first_arrival_) first_arrival_ = now;
}

void ExitRendezvous::lost(int rank) { places_[static_cast<std::size_t>(rank)].lost = true; }

void ExitRendezvous::aborted(Outcome outcome, Clock::time_point now) {
  if (abort_time_) return;
  abort_time_ = now;
  abort_outcome_ = outcome;
}

bool ExitRendezvous::has_arrived(int rank) const {
  return places_[static_cast<std::size_t>(rank)].outcome.has_value();
}

std::vector<int> ExitRendezvous::missing() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    if (!places_[rank].outcome && !places_[rank].lost) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::optional<ExitRendezvous::Clock::time_point> ExitRendezvous::deadline() const {
  if (abort_time_) return *abort_time_ + kGraceAfterAbort;
  if (first_arrival_) return *first_arrival_ + exit_timeout_;
  return std::nullopt;
}

std::optional<Verdict> ExitRendezvous::verdict(Clock::time_point now) const {
  const bool all_here = missing().empty();
  if (abort_time_) {
    if (!all_here && now < *deadline()) return std::nullopt;
    return Verdict{.outcome = abort_outcome_, .complete = false};
  }
  if (!all_here) return std::nullopt;
  Verdict verdict{.outcome = Outcome::finished, .complete = true};
  for (const Place& place : places_) {
    if (place.lost) verdict.complete = false;
    if (place.outcome) verdict.outcome = std::max(verdict.outcome, *place.outcome);
  }
  return verdict;
}

}  // namespace lockstep
