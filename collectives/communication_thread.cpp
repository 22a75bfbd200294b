// SPDX-License-Identifier: Apache-2.0
#include "collectives/communication_thread.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// How often the thread looks at the abort signal while operations wait for their input only.
constexpr std::chrono::milliseconds kLook{20};

struct Queued {
  std::uint64_t number = 0;  // over all queues
  Operation operation;
  Event done;
};

struct Called {
  std::uint64_t number = 0;
  std::function<void()> body;
  Event done;
};

}  // namespace

class CommunicationThread::Queue {
 public:
  explicit Queue(Lane lane) : lane_(lane) {}

 private:
  friend class CommunicationThread;
  // The operation under way. The task refers to the wait.
  struct Running {
    Queued queued;
    Wait wait;
    Task task;

    explicit Running(Queued begun)
        : queued(std::move(begun)),
          wait(*queued.operation.abort, Clock::now() + queued.operation.timeout,
               queued.operation.text),
          task(queued.operation.make(wait)) {}
  };

  const Lane lane_;
  std::deque<Queued> waiting_;        // guarded by the thread's mutex
  bool removed_ = false;              // guarded too
  std::unique_ptr<Running> running_;  // of the communication thread alone
};

struct CommunicationThread::State {
  std::mutex mutex;  // of all but `running_` and what is marked
  std::condition_variable changed;
  std::uint64_t handed_over = 0;
  std::uint64_t wakes = 0;                     // something has changed since
  std::vector<std::shared_ptr<Queue>> queues;  // by lane
  bool queues_changed = false;
  std::deque<Called> calls;
  bool stopping = false;

  // Of the communication thread.
  std::vector<std::shared_ptr<Queue>> order;  // `queues`, to go through without the lock
  std::exception_ptr failure;
  Backoff backoff;
  std::thread thread;

  void wake() {
    {
      const std::lock_guard lock(mutex);
      ++wakes;
    }
    changed.notify_one();
  }

  void run();
  void update_order();
  bool advance(Queue& queue);
  std::unique_ptr<Queue::Running> next(Queue& queue);
  bool run_due_call();
  void fail_all();
  bool idle(std::uint64_t seen);
};

// With the lock.
void CommunicationThread::State::update_order() {
  if (!queues_changed) return;
  std::erase_if(queues, [](const auto& queue) {
    return queue->removed_ && queue->waiting_.empty() && !queue->running_;
  });
  order = queues;
  queues_changed = false;
}

// The next operation of the queue, if there is one and its input is ready.
std::unique_ptr<CommunicationThread::Queue::Running> CommunicationThread::State::next(
    Queue& queue) {
  std::optional<Queued> begun;
  {
    const std::lock_guard lock(mutex);
    if (queue.waiting_.empty() || !queue.waiting_.front().operation.ready.done()) return nullptr;
    begun = std::move(queue.waiting_.front());
    queue.waiting_.pop_front();
  }
  const Event done = begun->done;
  try {
    begun->operation.ready.wait();  // throws if it has failed
    return std::make_unique<Queue::Running>(std::move(*begun));
  } catch (...) {
    failure = std::current_exception();
    done.fail(failure);
    return nullptr;
  }
}

// Goes on with the queue's operations as far as they get without waiting. Returns whether anything
// moved.
bool CommunicationThread::State::advance(Queue& queue) {
  bool moved = false;
  while (!failure) {
    if (queue.running_) {
      if (!queue.running_->wait.resume()) return moved;
    } else {
      queue.running_ = next(queue);
      if (!queue.running_) return moved;
      queue.running_->task.start();
    }
    moved = true;
    if (!queue.running_->task.done()) return moved;
    const Event done = queue.running_->queued.done;
    try {
      queue.running_->task.rethrow();
      queue.running_.reset();
      done.reach();
    } catch (...) {
      failure = std::current_exception();
      queue.running_.reset();
      done.fail(failure);
    }
  }
  return moved;
}

bool CommunicationThread::State::run_due_call() {
  Called due;
  {
    const std::lock_guard lock(mutex);
    if (calls.empty()) return false;
    for (const auto& queue : queues) {
      const bool earlier =
          (queue->running_ && queue->running_->queued.number < calls.front().number) ||
          (!queue->waiting_.empty() && queue->waiting_.front().number < calls.front().number);
      if (earlier) return false;
    }
    due = std::move(calls.front());
    calls.pop_front();
  }
  try {
    due.body();
    due.done.reach();
  } catch (...) {
    due.done.fail(std::current_exception());
  }
  return true;
}

void CommunicationThread::State::fail_all() {
  std::vector<Event> events;
  {
    const std::lock_guard lock(mutex);
    for (const auto& queue : queues) {
      if (queue->running_) events.push_back(queue->running_->queued.done);
      queue->running_.reset();
      for (const Queued& queued : queue->waiting_) events.push_back(queued.done);
      queue->waiting_.clear();
    }
    for (const Called& called : calls) events.push_back(called.done);
    calls.clear();
  }
  for (const Event& event : events) event.fail(failure);
}

// Waits for something to do; `seen` is what was known before looking. False if nothing can come.
bool CommunicationThread::State::idle(std::uint64_t seen) {
  std::unique_lock lock(mutex);
  const auto news = [&] { return wakes != seen; };
  const auto running = [](const auto& queue) { return queue->running_ != nullptr; };
  const auto waiting = [](const auto& queue) { return !queue->waiting_.empty(); };
  if (news()) return true;
  if (std::any_of(queues.begin(), queues.end(), running)) {
    lock.unlock();
    const auto sleep = backoff.step();
    lock.lock();
    if (sleep) changed.wait_for(lock, *sleep, news);
    return true;
  }
  if (std::any_of(queues.begin(), queues.end(), waiting)) {
    changed.wait_for(lock, kLook, news);
    const auto look = [](const auto& queue) {
      if (!queue->waiting_.empty()) queue->waiting_.front().operation.abort->throw_if_raised();
    };
    try {
      std::for_each(queues.begin(), queues.end(), look);
    } catch (...) {
      failure = std::current_exception();
    }
    return true;
  }
  if (stopping) return false;
  changed.wait(lock, news);
  return true;
}

void CommunicationThread::State::run() {
  for (;;) {
    std::uint64_t seen = 0;
    {
      const std::lock_guard lock(mutex);
      seen = wakes;
      update_order();
    }
    bool moved = false;
    for (const auto& queue : order) moved = advance(*queue) || moved;
    if (failure) fail_all();
    moved = run_due_call() || moved;
    if (moved) {
      backoff.reset();
      continue;
    }
    if (!idle(seen)) return;
  }
}

CommunicationThread::CommunicationThread(const std::string& name)
    : state_(std::make_shared<State>()) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
  // The kernel keeps 15 characters.
  if (!name.empty()) {
    pthread_setname_np(state_->thread.native_handle(), name.substr(0, 15).c_str());
  }
}

CommunicationThread::~CommunicationThread() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    ++state_->wakes;
  }
  state_->changed.notify_one();
  state_->thread.join();
}

std::shared_ptr<CommunicationThread::Queue> CommunicationThread::add_queue(Lane lane) {
  auto queue = std::make_shared<Queue>(lane);
  const std::lock_guard lock(state_->mutex);
  auto& queues = state_->queues;
  const auto behind = std::find_if(queues.begin(), queues.end(),
                                   [&](const auto& other) { return other->lane_ > lane; });
  queues.insert(behind, queue);
  state_->queues_changed = true;
  return queue;
}

void CommunicationThread::remove(Queue& queue) {
  const std::lock_guard lock(state_->mutex);
  queue.removed_ = true;
  state_->queues_changed = true;
}

Event CommunicationThread::start(Queue& queue, Operation operation) {
  const Event done = Event::make();
  const Event ready = operation.ready;
  {
    const std::lock_guard lock(state_->mutex);
    queue.waiting_.push_back(
        {.number = ++state_->handed_over, .operation = std::move(operation), .done = done});
  }
  state_->wake();  // also without the input: from now on it looks at the abort signal
  if (!ready.done()) {
    // It looks again when the input is there. It may be gone by then.
    ready.on_done([weak = std::weak_ptr<State>(state_)] {
      if (const auto state = weak.lock()) state->wake();
    });
  }
  return done;
}

Event CommunicationThread::call(std::function<void()> call) {
  const Event done = Event::make();
  {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back(
        {.number = ++state_->handed_over, .body = std::move(call), .done = done});
  }
  state_->wake();
  return done;
}

}  // namespace lockstep
