// SPDX-License-Identifier: Apache-2.0
#include "collectives/control_channel.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/exit_rendezvous.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kLateAtExit = "late at exit";
constexpr const char* kRestart =
    "look at that rank's log and host, then start again: the run resumes "
    "from its last checkpoint";

// What the communication thread has to notice an abort by itself. Inside MPI it may not: Open MPI
// reports a broken connection to the launcher, which answers no one while it kills the job.
constexpr milliseconds kCommunicationEnds{200};
// Survivors of a dead rank 0 cannot meet: each gives the others so long after the loss, which all
// see within milliseconds. Longer than kCommunicationEnds and the writing of a cause.
constexpr milliseconds kPartingTime{700};
// What another rank allows rank 0 beyond its own deadlines.
constexpr milliseconds kVerdictMargin{1000};
// What rank 0 allows the others to read the verdict.
constexpr milliseconds kVerdictRead{1000};

}  // namespace

class ControlChannel::Loop {
 public:
  Loop(ControlOptions options, std::vector<ControlLink> links, AbortSignal& signal)
      : options_(std::move(options)),
        signal_(signal),
        rendezvous_(options_.size, options_.exit_timeout),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_) {
      throw CommError(std::string("control channel: eventfd: ") + std::strerror(errno),
                      "raise the limit of open files (ulimit -n)");
    }
    for (std::size_t i = 0; i < links.size(); ++i) {
      if (!links[i].open()) continue;
      // Another rank's only link leads to rank 0.
      peers_.push_back({.rank = is_root() ? static_cast<int>(i) : 0, .link = std::move(links[i])});
    }
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "control");
  }

  ~Loop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    thread_.join();
  }

  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void wake() const noexcept {
    const std::uint64_t one = 1;
    // A full counter already wakes the thread.
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  }

  void set_callback(std::function<void(const AbortCause&)> callback) {
    {
      const std::lock_guard lock(mutex_);
      callback_ = std::move(callback);
    }
    wake();
  }

  bool lost_peer_within(milliseconds window) const noexcept {
    const auto at = lost_at_.load(std::memory_order_acquire);
    return at != Clock::time_point::min() && Clock::now() - at <= window;
  }

  Verdict leave(Outcome mine) {
    std::unique_lock lock(mutex_);
    if (!goodbye_) goodbye_ = mine;
    wake();
    const auto began = Clock::now();
    while (!verdict_) {
      const auto limit = signal_.raised() ? ExitRendezvous::kGraceAfterAbort
                                          : std::max(options_.exit_timeout, milliseconds(0));
      if (Clock::now() >= began + limit + kVerdictMargin) break;
      // Short, because an abort shortens the limit.
      changed_.wait_for(lock, milliseconds(20));
    }
    if (verdict_) return *verdict_;
    const auto cause = signal_.cause();
    return {.outcome = cause ? cause->outcome : Outcome::failed_elsewhere, .complete = false};
  }

  void wait_for_root_to_end(milliseconds limit) {
    std::unique_lock lock(mutex_);
    if (options_.rank == 0) return;
    changed_.wait_for(lock, limit, [&] { return root_gone_; });
  }

 private:
  struct Peer {
    int rank = 0;
    ControlLink link;
    Clock::time_point heard = Clock::now();
    bool left = false;    // said goodbye, or counted as lost
    bool silent = false;  // counted as stopped
    bool knows_verdict = false;
  };

  bool is_root() const noexcept { return options_.rank == 0; }

  void run() {
    for (;;) {
      const auto now = Clock::now();
      forgive_own_sleep(now);
      if (!take_requests(now)) return;
      for (Peer& peer : peers_) listen_to(peer, now);
      beat(now);
      spread_abort(now);
      release_waiters(now);
      if (is_root()) {
        judge(now);
        conclude(now);
      }
      if (!is_root()) part_from_dead_root(now);
      sleep();
    }
  }

  // A process that was stopped or starved must not blame the others for its own absence.
  void forgive_own_sleep(Clock::time_point now) {
    const auto asleep = now - last_turn_;
    last_turn_ = now;
    if (asleep < 2 * options_.heartbeat) return;
    for (Peer& peer : peers_) peer.heard += asleep;
  }

  bool take_requests(Clock::time_point now) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof count);
    const std::lock_guard lock(mutex_);
    if (goodbye_ && !goodbye_sent_) {
      goodbye_sent_ = true;
      if (is_root()) {
        rendezvous_.arrived(0, *goodbye_, now);
      } else {
        send_goodbye_ = true;
      }
    }
    return !stopping_;
  }

  void listen_to(Peer& peer, Clock::time_point now) {
    const bool was_open = peer.link.open();
    try {
      peer.link.read();
      while (const auto frame = peer.link.next()) {
        peer.heard = now;
        hear(peer, *frame, now);
      }
    } catch (const CommError& error) {
      peer.link.close();
      signal_raise({.outcome = error.outcome(),
                    .kind = kLostRank,
                    .origin_rank = peer.rank,
                    .what = name(peer.rank) + ": " + error.what(),
                    .hint = error.hint()});
    }
    if (was_open && !peer.link.open()) closed(peer);
    if (peer.link.open() && !peer.left && !finished_ &&
        now - peer.heard >= options_.silence_timeout) {
      peer.left = peer.silent = true;
      rendezvous_.lost(peer.rank);
      const auto silence =
          std::chrono::duration_cast<milliseconds>(options_.silence_timeout).count();
      signal_raise({.outcome = Outcome::failed_elsewhere,
                    .kind = kStoppedRank,
                    .origin_rank = peer.rank,
                    .what = name(peer.rank) + " has not been heard of for " +
                            std::to_string(silence) + " ms: stopped, or its host is gone",
                    .hint = kRestart});
    }
    if (peer.link.wants_to_write()) peer.link.flush();
  }

  void hear(Peer& peer, const Frame& frame, Clock::time_point now) {
    switch (frame.type) {
      case FrameType::abort:
        signal_raise(decode_cause(frame.body));
        break;
      case FrameType::goodbye:
        peer.left = true;
        rendezvous_.arrived(peer.rank, decode_outcome(frame.body), now);
        break;
      case FrameType::verdict:
        peer.knows_verdict = true;
        if (is_root()) break;
        peer.link.send(frame);
        finish(decode_verdict(frame.body));
        break;
      case FrameType::heartbeat:
      case FrameType::hello:
      case FrameType::welcome:
        break;
    }
  }

  void closed(Peer& peer) {
    if (!is_root()) {
      const std::lock_guard lock(mutex_);
      root_gone_ = true;
      changed_.notify_all();
    }
    if (finished_) return;
    rendezvous_.lost(peer.rank);
    if (std::exchange(peer.left, true)) return;
    signal_raise({.outcome = Outcome::failed_elsewhere,
                  .kind = kLostRank,
                  .origin_rank = peer.rank,
                  .what = name(peer.rank) + " is gone: its process ended without a goodbye",
                  .hint = kRestart});
  }

  void beat(Clock::time_point now) {
    if (now - last_beat_ < options_.heartbeat) return;
    last_beat_ = now;
    for (Peer& peer : peers_) peer.link.send({.type = FrameType::heartbeat, .body = {}});
  }

  void signal_raise(AbortCause cause) {
    // What happens to processes after the verdict is no failure any more.
    if (finished_) return;
    signal_.raise(std::move(cause));
  }

  // Everything that follows a failure, once: the peers first, then our own callback.
  void spread_abort(Clock::time_point now) {
    if (signal_.raised() && !aborted_at_) {
      aborted_at_ = now;
      const AbortCause cause = signal_.cause().value_or(AbortCause{});
      if (cause.kind == kLostRank || cause.kind == kStoppedRank) lost_at_.store(now);
      rendezvous_.aborted(cause.outcome, now);
      for (Peer& peer : peers_) {
        peer.link.send({.type = FrameType::abort, .body = encode_cause(cause)});
      }
    }
    if (aborted_at_ && !called_back_) {
      std::function<void(const AbortCause&)> callback;
      {
        const std::lock_guard lock(mutex_);
        callback = callback_;
      }
      if (callback) call_back(callback);
    }
    // Last, so that a rank that says goodbye has written its cause.
    if (std::exchange(send_goodbye_, false)) {
      const std::lock_guard lock(mutex_);
      for (Peer& peer : peers_) {
        peer.link.send({.type = FrameType::goodbye, .body = encode_outcome(*goodbye_)});
      }
    }
  }

  void release_waiters(Clock::time_point now) {
    if (released_ || !aborted_at_ || now < *aborted_at_ + kCommunicationEnds) return;
    released_ = true;
    signal_.release_waiters();
  }

  void call_back(const std::function<void(const AbortCause&)>& callback) {
    called_back_ = true;
    try {
      callback(signal_.cause().value_or(AbortCause{}));
    } catch (const std::exception& error) {
      // A cause that cannot be written must not keep the ranks from ending.
      std::fprintf(stderr, "rank %d: the cause of the abort could not be recorded: %s\n",
                   options_.rank, error.what());
    }
  }

  // Rank 0: ends the rendezvous.
  void judge(Clock::time_point now) {
    if (finished_) return;
    const auto deadline = rendezvous_.deadline();
    const auto verdict = rendezvous_.verdict(now);
    if (!verdict && deadline && now >= *deadline) {
      const std::vector<int> missing = rendezvous_.missing();
      std::string ranks;
      for (const int rank : missing) ranks += (ranks.empty() ? "" : ", ") + name(rank);
      signal_raise({.outcome = Outcome::failed_elsewhere,
                    .kind = kLateAtExit,
                    .origin_rank = missing.front(),
                    .what = "the other ranks have finished and still wait for " + ranks,
                    .hint = "look at its log: it does something that the others do not"});
      spread_abort(now);
    }
    if (!verdict) return;
    for (Peer& peer : peers_) {
      peer.link.send({.type = FrameType::verdict, .body = encode_verdict(*verdict)});
    }
    finished_ = true;
    told_ = verdict;
    told_at_ = now;
  }

  // Rank 0: leaves when the others know. A process that ends with frames unread resets its
  // connections, and what it has sent and is not read is gone.
  void conclude(Clock::time_point now) {
    if (!told_) return;
    const bool all_know = std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
      return peer.knows_verdict || peer.silent || !peer.link.open();
    });
    if (all_know || now >= told_at_ + kVerdictRead) finish(*std::exchange(told_, std::nullopt));
  }

  // Another rank whose rank 0 is gone: nobody is left to give a verdict.
  void part_from_dead_root(Clock::time_point now) {
    if (finished_ || !aborted_at_ || !goodbye_sent_) return;
    const bool root_lost = std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
      return peer.left || !peer.link.open();
    });
    if (!root_lost) return;
    if (now < *aborted_at_ + kPartingTime) return;
    finish({.outcome = signal_.cause().value_or(AbortCause{}).outcome, .complete = false});
  }

  void finish(const Verdict& verdict) {
    finished_ = true;
    const std::lock_guard lock(mutex_);
    verdict_ = verdict;
    changed_.notify_all();
  }

  void sleep() {
    std::vector<pollfd> watched = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    for (const Peer& peer : peers_) {
      if (!peer.link.open()) continue;
      const bool writes = peer.link.wants_to_write();
      watched.push_back({.fd = peer.link.fd(),
                         .events = static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN),
                         .revents = 0});
    }
    poll(watched.data(), watched.size(), turn());
  }

  // Milliseconds until something is due; -1 if nothing ever is.
  int turn() const {
    if (told_ || (aborted_at_ && !released_)) return 20;
    if (!finished_ && (aborted_at_ || rendezvous_.deadline())) return 20;
    if (peers_.empty()) return -1;
    auto due = last_beat_ + options_.heartbeat;
    for (const Peer& peer : peers_) {
      // To the point, so that all ranks notice a stopped rank 0 within milliseconds of each other.
      if (peer.link.open() && !peer.left)
        due = std::min(due, peer.heard + options_.silence_timeout);
    }
    const auto left = std::chrono::ceil<milliseconds>(due - Clock::now());
    return std::max(1, static_cast<int>(left.count()));
  }

  std::string name(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return index < options_.names.size() ? options_.names[index] : "rank " + std::to_string(rank);
  }

  const ControlOptions options_;
  AbortSignal& signal_;

  // Of the control thread alone.
  std::vector<Peer> peers_;
  ExitRendezvous rendezvous_;  // rank 0's; on others it only holds the time of the abort
  Clock::time_point last_turn_ = Clock::now();
  Clock::time_point last_beat_ = Clock::time_point{};
  std::optional<Clock::time_point> aborted_at_;
  bool finished_ = false;
  std::optional<Verdict> told_;  // rank 0: sent, and perhaps not read yet
  Clock::time_point told_at_ = Clock::time_point{};
  bool released_ = false;
  bool called_back_ = false;
  bool goodbye_sent_ = false;
  bool send_goodbye_ = false;

  std::atomic<Clock::time_point> lost_at_{Clock::time_point::min()};

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  bool stopping_ = false;
  bool root_gone_ = false;
  std::optional<Outcome> goodbye_;
  std::optional<Verdict> verdict_;
  std::function<void(const AbortCause&)> callback_;

  FileHandle wake_;
  std::thread thread_;
};

ControlChannel::ControlChannel(ControlOptions options, std::vector<ControlLink> links,
                               std::shared_ptr<AbortSignal> signal)
    : signal_(std::move(signal)),
      loop_(std::make_unique<Loop>(std::move(options), std::move(links), *signal_)) {}

ControlChannel::~ControlChannel() = default;

void ControlChannel::abort(AbortCause cause) noexcept {
  // Raised here already, so that this process stops at once.
  if (signal_->raise(std::move(cause))) loop_->wake();
}

void ControlChannel::on_abort(std::function<void(const AbortCause&)> callback) {
  loop_->set_callback(std::move(callback));
}

bool ControlChannel::lost_peer_within(milliseconds window) const noexcept {
  return loop_->lost_peer_within(window);
}

Verdict ControlChannel::leave(Outcome mine) noexcept { return loop_->leave(mine); }

void ControlChannel::wait_for_root_to_end(milliseconds limit) noexcept {
  loop_->wait_for_root_to_end(limit);
}

}  // namespace lockstep
