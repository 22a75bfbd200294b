// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <utility>

#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/nccl_faults.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace fake = lockstep::fake;

namespace {

constexpr auto kTick = std::chrono::milliseconds(2);  // for what notifies nobody: a kernel's fault
constexpr int kPollsOfFirst = 3;                      // the first operation connects

bool never() { return false; }

}  // namespace

ncclComm::~ncclComm() { join(); }

void ncclComm::start(std::function<void()> body) {
  join();
  thread_ = std::thread(std::move(body));
}

void ncclComm::join() {
  if (thread_.joinable()) thread_.join();
}

void ncclComm::init(const ncclUniqueId& id) {
  std::string error;
  segment = fake::Segment::open(id, error);
  if (!segment) return set_state(ncclSystemError, error);
  const auto stop = [this] { return aborted_.load(); };
  const auto forget = [&] { fake::Segment::forget(id); };
  if (fake::init_never_ends(rank)) {
    segment->wait(never, stop);
    return forget();
  }
  fake::RankState& mine = segment->rank(rank);
  mine.device = fake::physical_device(device);
  const char* const host = std::getenv("NCCL_HOSTID");
  mine.host = std::hash<std::string>{}(host != nullptr ? host : "");
  mine.ranks = size;
  if (mine.present.exchange(1) != 0) {
    return set_state(ncclInvalidUsage, "rank " + std::to_string(rank) + " came twice");
  }
  segment->ring();
  const auto all_present = [this] {
    for (int i = 0; i < size; ++i) {
      if (segment->rank(i).present.load() == 0) return false;
    }
    return true;
  };
  const bool complete = segment->wait(all_present, stop);
  forget();
  if (!complete) return;
  for (int i = 0; i < size; ++i) {
    const fake::RankState& one = segment->rank(i);
    if (one.ranks != size) {
      return set_state(ncclInvalidArgument, "rank " + std::to_string(i) + " says there are " +
                                                std::to_string(one.ranks) + " ranks, not " +
                                                std::to_string(size));
    }
    for (int j = 0; j < i; ++j) {
      if (segment->rank(j).device != one.device || segment->rank(j).host != one.host) continue;
      return set_state(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(j) +
                                             " and rank " + std::to_string(i) +
                                             " both on CUDA device " + std::to_string(one.device));
    }
  }
  set_state(ncclSuccess);
}

void ncclComm::split(ncclComm& parent, ncclComm* child, std::uint32_t number, int color, int key) {
  fake::Segment& segment = *parent.segment;
  const auto stop = [&] { return parent.aborted_.load() || (child && child->aborted_.load()); };
  const auto all = [&](std::atomic<std::uint32_t> fake::RankState::*counter) {
    return [&segment, &parent, number, counter] {
      for (int i = 0; i < parent.size; ++i) {
        if ((segment.rank(i).*counter).load() < number) return false;
      }
      return true;
    };
  };
  fake::RankState& mine = segment.rank(parent.rank);
  mine.color = color;
  mine.key = key;
  mine.split_said.store(number);
  segment.ring();
  if (!segment.wait(all(&fake::RankState::split_said), stop)) return;

  std::vector<int> members;
  for (int i = 0; i < parent.size; ++i) {
    if (segment.rank(i).color == color) members.push_back(i);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return segment.rank(a).key < segment.rank(b).key; });
  ncclUniqueId id{};
  if (child != nullptr) {
    fake::RankState& first = segment.rank(members.front());
    std::string error;
    if (members.front() == parent.rank) {
      if (!fake::Segment::make(mine.child, error)) {
        return child->set_state(ncclSystemError, error);
      }
      mine.split_named.store(number);
      segment.ring();
    }
    if (!segment.wait([&] { return first.split_named.load() >= number; }, stop)) return;
    id = first.child;
  }
  mine.split_read.store(number);
  segment.ring();
  if (!segment.wait(all(&fake::RankState::split_read), stop)) return;
  parent.end_split();
  if (child == nullptr) return;
  child->size = static_cast<int>(members.size());
  child->rank =
      static_cast<int>(std::find(members.begin(), members.end(), parent.rank) - members.begin());
  child->init(id);
}

ncclResult_t ncclComm::wait_while_in_progress() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ != ncclInProgress || aborted_; });
  return aborted_ ? ncclInternalError : state_;
}

std::uint32_t ncclComm::begin_split() {
  const std::lock_guard lock(mutex_);
  state_ = ncclInProgress;
  return ++splits_;
}

void ncclComm::end_split() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == ncclInProgress) state_ = ncclSuccess;
  }
  changed_.notify_all();
}

ncclResult_t ncclComm::ready_to_split() {
  const std::lock_guard lock(mutex_);
  if (state_ != ncclInProgress) return state_;
  return fake::fail(ncclInvalidArgument, "ncclCommSplit: the communicator is in progress");
}

ncclResult_t ncclComm::poll() {
  const std::lock_guard lock(mutex_);
  if (!held_.empty() && --polls_left_ <= 0) {
    release_held(false);
    if (state_ == ncclInProgress) state_ = ncclSuccess;
  }
  return state_;
}

ncclResult_t ncclComm::flush() {
  const std::lock_guard lock(mutex_);
  if (!held_.empty()) {
    release_held(false);
    if (state_ == ncclInProgress) state_ = ncclSuccess;
  }
  return state_;
}

bool ncclComm::initialising() {
  const std::lock_guard lock(mutex_);
  return !joined_;
}

void ncclComm::begin_finalize() {
  const std::lock_guard lock(mutex_);
  finalizing_ = true;
  if (state_ == ncclSuccess) state_ = ncclInProgress;
}

// An error stays.
void ncclComm::set_state(ncclResult_t result, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == ncclSuccess || state_ == ncclInProgress) state_ = result;
    if (result == ncclSuccess) joined_ = true;
    if (!message.empty()) static_cast<void>(fake::fail(result, message));
  }
  changed_.notify_all();
}

ncclResult_t ncclComm::ready(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (finalizing_) return fake::fail(ncclInvalidUsage, name + " after ncclCommFinalize");
  if (stopped_) return fake::fail(ncclInvalidUsage, name + " after ncclCommRevoke");
  if (state_ == ncclInProgress) {
    return fake::fail(ncclInvalidArgument, name + ": the communicator is in progress");
  }
  return state_;
}

ncclResult_t ncclComm::launch(std::vector<fake::Job> jobs) {
  const std::lock_guard lock(mutex_);
  if (state_ != ncclSuccess) return state_;
  if (blocking) {
    for (fake::Job& job : jobs) queue(std::move(job));
    return ncclSuccess;
  }
  for (const fake::Job& job : jobs) fake::hold(job.stream, "an NCCL operation");
  held_ = std::move(jobs);
  polls_left_ = std::exchange(warm_, true) ? 1 : kPollsOfFirst;
  state_ = ncclInProgress;
  return ncclInProgress;
}

void ncclComm::release_held(bool drop) {
  for (const fake::Job& job : held_) fake::hold(job.stream, nullptr);
  for (fake::Job& job : held_) {
    if (!drop) queue(std::move(job));
  }
  held_.clear();
}

void ncclComm::queue(fake::Job job) {
  const std::uint64_t number = queued_++;
  fake::enqueue(job.stream, [self = shared_from_this(), number, body = std::move(job.run)] {
    self->run(number, body);
  });
}

void ncclComm::run(std::uint64_t number, const std::function<void()>& body) {
  std::unique_lock lock(mutex_);
  while (turn_ != number && !stopped()) changed_.wait_for(lock, kTick);
  if (!stopped() && (state_ == ncclSuccess || state_ == ncclInProgress)) {
    running_ = true;
    lock.unlock();
    body();
    lock.lock();
    running_ = false;
  }
  turn_ = std::max(turn_, number + 1);
  lock.unlock();
  changed_.notify_all();
}

// Until everybody's work is done, as the real one.
void ncclComm::finalize() {
  wait_for_jobs();
  segment->rank(rank).finalized.store(1);
  segment->ring();
  const bool all = segment->wait(
      [this] {
        for (int i = 0; i < size; ++i) {
          if (segment->rank(i).finalized.load() == 0) return false;
        }
        return true;
      },
      [this] { return stopped(); });
  if (all) set_state(ncclSuccess);
}

void ncclComm::wait_for_jobs() {
  std::unique_lock lock(mutex_);
  while (turn_ != queued_ && !stopped()) changed_.wait_for(lock, kTick);
}

void* ncclComm::add_registration(void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  registered_[++last_registration_] = {.data = data, .bytes = bytes};
  return reinterpret_cast<void*>(last_registration_);
}

void ncclComm::remove_registration(void* registration) {
  const std::lock_guard lock(mutex_);
  const auto found = registered_.find(reinterpret_cast<std::uintptr_t>(registration));
  if (found == registered_.end()) fake::die("ncclCommDeregister of what is not registered");
  fake::check_reachable("ncclCommDeregister", "buffer", device, found->second.data,
                        found->second.bytes);
  registered_.erase(found);
}

std::size_t ncclComm::registrations() {
  const std::lock_guard lock(mutex_);
  return registered_.size();
}

bool ncclComm::stopped() const { return stopped_ || fake::faulted(); }

void ncclComm::stop(bool and_abort) {
  std::unique_lock lock(mutex_);
  stopped_ = true;
  if (and_abort) aborted_ = true;
  release_held(true);
  lock.unlock();
  changed_.notify_all();
  if (and_abort) join();  // of init or finalize, so that `segment` is still
  if (segment) segment->ring();
  lock.lock();
  changed_.wait(lock, [this] { return !running_; });
}
