// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// How a run ended, as the exit status of the command and `code` of result.json.
///
/// Schedulers act on it: see docs/outcomes.md for the table.
enum class Outcome : int {
  finished = 0,
  bad_data = 65,          // the data's error budget is spent
  internal = 70,          // a fault of the program
  no_checkpoint = 74,     // no usable checkpoint where one must be
  saved = 75,             // interrupted, saved, wants to run again
  interrupted = 76,       // interrupted, not saved; the last commit stands
  limit = 77,             // budget, time or idle policy
  config = 78,            // configuration error or mismatch between ranks
  failed_elsewhere = 79,  // a peer, a device or a store failed
  fenced = 80,            // a newer attempt owns the run
  non_finite = 81,        // non-finite loss, or replicas that differ
  guard = 82,             // run-until-done: attempts without progress
};

/// Every exception that leaves the library: what failed (rank, operation, object), and one sentence
/// on what the reader can do about it.
class Error : public std::runtime_error {
 public:
  Error(const std::string& what, std::string hint, Outcome outcome)
      : std::runtime_error(what), hint_(std::move(hint)), outcome_(outcome) {}
  const std::string& hint() const noexcept { return hint_; }
  Outcome outcome() const noexcept { return outcome_; }

 private:
  std::string hint_;
  Outcome outcome_;
};

/// Fix the program: a wrong shape, order or lifetime.
struct UsageError : Error {
  UsageError(const std::string& what, std::string hint)
      : Error(what, std::move(hint), Outcome::internal) {}
};

/// Fix a flag, a variable, the file of options, or what differs between ranks.
struct ConfigError : Error {
  ConfigError(const std::string& what, std::string hint)
      : Error(what, std::move(hint), Outcome::config) {}
};

/// No driver or no memory: a smaller batch or another device.
struct DeviceError : Error {
  DeviceError(const std::string& what, std::string hint)
      : Error(what, std::move(hint), Outcome::failed_elsewhere) {}
};

/// A peer is lost, late or gave up: start again from the last checkpoint.
struct CommError : Error {
  CommError(const std::string& what, std::string hint, Outcome outcome = Outcome::failed_elsewhere,
            int origin_rank = -1)
      : Error(what, std::move(hint), outcome), origin_rank_(origin_rank) {}
  /// The rank on which the failure began; -1 where nobody knows.
  int origin_rank() const noexcept { return origin_rank_; }

 private:
  int origin_rank_;
};

/// An object store or a file system failed; the retries are spent.
struct StorageError : Error {
  StorageError(const std::string& what, std::string hint,
               Outcome outcome = Outcome::failed_elsewhere)
      : Error(what, std::move(hint), outcome) {}
};

/// A damaged record, shard or checkpoint: take another one.
struct DataError : Error {
  DataError(const std::string& what, std::string hint, Outcome outcome = Outcome::bad_data)
      : Error(what, std::move(hint), outcome) {}
};

/// A loss, norm or gradient is not finite, or replicas that must be equal differ.
struct NumericError : Error {
  NumericError(const std::string& what, std::string hint)
      : Error(what, std::move(hint), Outcome::non_finite) {}
};

/// A newer attempt has claimed the run: this one must not write any more.
struct FencedError : Error {
  FencedError(const std::string& what, std::string hint)
      : Error(what, std::move(hint), Outcome::fenced) {}
};

/// The text that `lockstep` prints for an exception: what, then the hint on its own line.
std::string describe(const std::exception& error);

/// The outcome of an exception; `internal` for one that is not ours.
Outcome outcome_of(const std::exception& error) noexcept;

}  // namespace lockstep
