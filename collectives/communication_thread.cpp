// SPDX-License-Identifier: Apache-2.0
#include "collectives/communication_thread.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <limits>
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

// How long another thread waits within an operation before it leaves it to this one.
enum class Patience : std::uint8_t { brief, until_sleep };

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

  bool is_free() const noexcept { return busy_with_ == 0 && waiting_.empty(); }

  const Lane lane_;
  // Guarded by the thread's mutex:
  std::deque<Queued> waiting_;
  std::uint64_t busy_with_ = 0;          // the operation that has begun and is not done; 0: none
  std::unique_ptr<Running> moves_here_;  // begun on another thread, to go on on this one
  bool removed_ = false;
  // Of the communication thread alone:
  std::unique_ptr<Running> running_;
};

struct CommunicationThread::State {
  std::mutex mutex;  // of the first part of this, and of the queues but for `running_`
  std::condition_variable changed;
  std::uint64_t handed_over = 0;
  std::uint64_t wakes = 0;                     // something has changed since
  std::exception_ptr failure;                  // of an operation, on whatever thread
  std::vector<std::shared_ptr<Queue>> queues;  // by lane
  bool queues_changed = false;
  std::deque<Called> calls;
  bool stopping = false;

  // Of the communication thread.
  std::vector<std::shared_ptr<Queue>> order;  // `queues`, to go through without the lock
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
  bool run_due_call();
  bool fail_all_after_a_failure();
  bool idle(std::uint64_t seen);

  // On whatever thread.
  std::unique_ptr<Queue::Running> take(Queue& queue, std::uint64_t up_to, bool is_this_thread);
  std::unique_ptr<Queue::Running> begin(Queue& queue, Queued taken);
  void end(Queue& queue, std::unique_ptr<Queue::Running> running);
  void end(Queue& queue, const Event& done, const std::exception_ptr& error);
  bool run_elsewhere(Queue& queue, std::unique_ptr<Queue::Running> running, Patience patience);
};

// With the lock.
void CommunicationThread::State::update_order() {
  if (!queues_changed) return;
  std::erase_if(queues, [](const auto& queue) {
    return queue->removed_ && queue->waiting_.empty() && queue->busy_with_ == 0;
  });
  order = queues;
  // One that still has something to do goes later.
  queues_changed =
      std::any_of(queues.begin(), queues.end(), [](const auto& queue) { return queue->removed_; });
}

// The next operation of the queue, begun, if its number is not above `up_to`, its input is ready
// and this thread may run it.
std::unique_ptr<CommunicationThread::Queue::Running> CommunicationThread::State::take(
    Queue& queue, std::uint64_t up_to, bool is_this_thread) {
  std::uint64_t number = 0;
  Event ready;
  {
    const std::lock_guard lock(mutex);
    if (failure) return nullptr;
    if (queue.moves_here_ && queue.busy_with_ <= up_to) return std::move(queue.moves_here_);
    if (queue.is_free()) return nullptr;
    if (queue.busy_with_ != 0 || queue.waiting_.front().number > up_to) return nullptr;
    const Queued& next = queue.waiting_.front();
    if (!is_this_thread && !next.operation.any_thread) return nullptr;
    number = next.number;
    ready = next.operation.ready;
  }
  // Without the lock: asking a device's event may be what ends it, and then it calls wake().
  if (!ready.done()) return nullptr;
  std::optional<Queued> taken;
  {
    const std::lock_guard lock(mutex);
    // Another thread may have been faster.
    if (failure || queue.busy_with_ != 0) return nullptr;
    if (queue.waiting_.empty() || queue.waiting_.front().number != number) return nullptr;
    taken = std::move(queue.waiting_.front());
    queue.waiting_.pop_front();
    queue.busy_with_ = taken->number;
  }
  return begin(queue, std::move(*taken));
}

// Null where the operation has failed at once.
std::unique_ptr<CommunicationThread::Queue::Running> CommunicationThread::State::begin(
    Queue& queue, Queued taken) {
  const Event done = taken.done;
  try {
    taken.operation.ready.wait();  // throws if it has failed
    auto running = std::make_unique<Queue::Running>(std::move(taken));
    running->task.start();
    return running;
  } catch (...) {
    end(queue, done, std::current_exception());
    return nullptr;
  }
}

void CommunicationThread::State::end(Queue& queue, std::unique_ptr<Queue::Running> running) {
  const Event done = running->queued.done;
  std::exception_ptr error;
  try {
    running->task.rethrow();
  } catch (...) {
    error = std::current_exception();
  }
  running.reset();
  end(queue, done, error);
}

void CommunicationThread::State::end(Queue& queue, const Event& done,
                                     const std::exception_ptr& error) {
  bool has_more = false;
  {
    const std::lock_guard lock(mutex);
    queue.busy_with_ = 0;
    if (error && !failure) failure = error;
    has_more = failure || !queue.waiting_.empty() || !calls.empty();
  }
  if (has_more) wake();
  if (error) {
    done.fail(error);
  } else {
    done.reach();
  }
}

// Goes on with the queue's operations as far as they get without waiting. Returns whether anything
// moved.
bool CommunicationThread::State::advance(Queue& queue) {
  for (bool moved = false;; moved = true) {
    if (queue.running_) {
      if (!queue.running_->wait.resume()) return moved;
    } else {
      queue.running_ = take(queue, std::numeric_limits<std::uint64_t>::max(), true);
      if (!queue.running_) return moved;
    }
    if (!queue.running_->task.done()) return true;
    end(queue, std::move(queue.running_));
  }
}

bool CommunicationThread::State::run_due_call() {
  Called due;
  {
    const std::lock_guard lock(mutex);
    if (calls.empty()) return false;
    for (const auto& queue : queues) {
      const std::uint64_t number = calls.front().number;
      const bool earlier = (queue->busy_with_ != 0 && queue->busy_with_ < number) ||
                           (!queue->waiting_.empty() && queue->waiting_.front().number < number);
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

// What a transport has in flight cannot be told then, so that nothing may go on.
bool CommunicationThread::State::fail_all_after_a_failure() {
  std::vector<Event> events;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex);
    if (!failure) return false;
    error = failure;
    for (const auto& queue : queues) {
      for (auto* const begun : {&queue->running_, &queue->moves_here_}) {
        if (!*begun) continue;
        events.push_back((*begun)->queued.done);
        begun->reset();
        queue->busy_with_ = 0;
      }
      for (const Queued& queued : queue->waiting_) events.push_back(queued.done);
      queue->waiting_.clear();
    }
    for (const Called& called : calls) events.push_back(called.done);
    calls.clear();
  }
  for (const Event& event : events) event.fail(error);
  return true;
}

// Whether the operation is done; else it moves to this thread. Null is done.
bool CommunicationThread::State::run_elsewhere(Queue& queue,
                                               std::unique_ptr<Queue::Running> running,
                                               Patience patience) {
  if (!running) return true;
  Backoff waited;
  while (!running->task.done()) {
    if (running->wait.resume()) {
      waited.reset();
      continue;
    }
    const bool goes_on =
        patience == Patience::brief ? waited.step_briefly() : !waited.step().has_value();
    if (goes_on) continue;
    {
      const std::lock_guard lock(mutex);
      queue.moves_here_ = std::move(running);
    }
    wake();
    return false;
  }
  end(queue, std::move(running));
  return true;
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
      if (!failure) failure = std::current_exception();
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
    for (const auto& queue : order) {
      if (fail_all_after_a_failure()) break;
      moved = advance(*queue) || moved;
    }
    if (!fail_all_after_a_failure()) moved = run_due_call() || moved;
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

std::uint64_t CommunicationThread::enter(Queue& queue) {
  const std::lock_guard lock(state_->mutex);
  if (!queue.is_free() || state_->failure) return 0;
  queue.busy_with_ = ++state_->handed_over;
  return queue.busy_with_;
}

Event CommunicationThread::leave(Queue& queue, const std::exception_ptr& error) {
  Event done = error ? Event::make() : Event();
  state_->end(queue, done, error);
  return done;
}

CommunicationThread::Started CommunicationThread::start(Queue& queue, Operation operation,
                                                        std::uint64_t entered) {
  Started started{.done = Event::make(), .number = entered};
  const Event ready = operation.ready;
  const bool here = operation.any_thread && operation.is_short && ready.done();
  std::optional<Queued> begun;
  {
    const std::lock_guard lock(state_->mutex);
    if (entered == 0) started.number = ++state_->handed_over;
    Queued queued{
        .number = started.number, .operation = std::move(operation), .done = started.done};
    if (entered != 0 || (here && queue.is_free() && !state_->failure)) {
      queue.busy_with_ = started.number;
      begun = std::move(queued);
    } else {
      queue.waiting_.push_back(std::move(queued));
    }
  }
  if (begun) {
    state_->run_elsewhere(queue, state_->begin(queue, std::move(*begun)), Patience::brief);
    return started;
  }
  state_->wake();  // also without the input: from now on it looks at the abort signal
  if (!ready.done()) {
    // It looks again when the input is there. It may be gone by then.
    ready.on_done([weak = std::weak_ptr<State>(state_)] {
      if (const auto state = weak.lock()) state->wake();
    });
  }
  return started;
}

void CommunicationThread::help(Queue& queue, std::uint64_t number) {
  while (auto running = state_->take(queue, number, false)) {
    if (!state_->run_elsewhere(queue, std::move(running), Patience::until_sleep)) return;
  }
}

Event CommunicationThread::call(std::function<void()> call) {
  Event done = Event::make();
  {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back(
        {.number = ++state_->handed_over, .body = std::move(call), .done = done});
  }
  state_->wake();
  return done;
}

}  // namespace lockstep
