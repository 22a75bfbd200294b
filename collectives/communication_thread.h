// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "collectives/task.h"
#include "collectives/wait.h"
#include "lockstep/collectives/communicator.h"
#include "lockstep/core/stream.h"

namespace lockstep {

/// One collective operation, as its group hands it over.
struct Operation {
  Event ready;                         // it begins after this
  std::function<std::string()> text;   // for messages
  std::chrono::nanoseconds timeout{};  // from its beginning
  std::shared_ptr<AbortSignal> abort;
  std::function<Task(Wait& wait)> make;  // called once, when it begins; kept until it is done
  bool any_thread = false;               // it calls no MPI
  bool is_short = false;  // and may keep the thread that hands it over, for 0.2 ms or so
};

/// The one thread of a process on which collectives run, and that calls MPI.
///
/// Every group has a queue of its own, whose operations run one after the other; those of different
/// groups run side by side, each going on when what it waits for has come, lanes in their order.
/// So no group waits for another, in whatever order the ranks get to them.
///
/// Operations that call no MPI may run on other threads too, because two changes of thread take
/// longer than a small sum: a short one whose input is there begins on the thread that hands it
/// over, and a thread that has nothing to do but wait for an operation runs it itself. They move
/// here where they would have to wait for long.
///
/// After an operation has failed, all others fail with the same exception, begun or not: what a
/// transport has in flight then cannot be told.
class CommunicationThread {
 public:
  class Queue;

  explicit CommunicationThread(const std::string& name);
  ~CommunicationThread();  // waits for what was handed over
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  /// A queue for one group, until remove().
  std::shared_ptr<Queue> add_queue(Lane lane);
  /// Nothing is handed over to `queue` any more; what was goes on.
  void remove(Queue& queue);

  struct Started {
    Event done;                // reached or failed when the operation is
    std::uint64_t number = 0;  // for help()
  };
  /// Any thread. `entered`: what enter() has answered, for the rest of that operation.
  Started start(Queue& queue, Operation operation, std::uint64_t entered = 0);

  /// For who carries out a short operation that calls no MPI on his own thread: the queue is his
  /// until leave() or start(…, entered). 0: something is under way, waits, or has failed; then
  /// there is start() only.
  std::uint64_t enter(Queue& queue);
  /// The operation is done, or has failed with `error`; the answer is its event.
  Event leave(Queue& queue, const std::exception_ptr& error = {});

  /// For a thread that waits for an operation of this queue: runs it, and those before it, until it
  /// is done or would have to wait for long, or does nothing where that may not be.
  void help(Queue& queue, std::uint64_t number);
  /// Runs `call` when all operations handed over before it are done; nothing else runs meanwhile.
  Event call(std::function<void()> call);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with events that are still to come
};

}  // namespace lockstep
