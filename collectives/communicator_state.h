// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backend.h"
#include "collectives/communication_thread.h"
#include "lockstep/collectives/prepared_reduction.h"
#include "lockstep/core/error.h"
#include "lockstep/core/ledger.h"
#include "lockstep/core/trace.h"

namespace lockstep {

struct Communicator::State {
  // What queued operations use: they may outlive the communicator.
  struct Shared {
    Shared(std::unique_ptr<Backend> moves, std::shared_ptr<AbortSignal> ends)
        : backend(std::move(moves)), abort(std::move(ends)) {}
    std::unique_ptr<Backend> backend;
    std::shared_ptr<AbortSignal> abort;
  };
  using Body = std::function<Task(Backend& backend, Wait& wait)>;
  struct What {
    CommOperation operation = CommOperation::barrier;
    std::int64_t count = 0;
    DType dtype = DType::u8;

    std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
  };

  // What a reduction adds up, kept alive.
  struct Parts {
    explicit Parts(std::vector<Tensor> given) : tensors(std::move(given)) {
      for (const Tensor& tensor : tensors) data.push_back(tensor.as<float>());
    }
    std::vector<Tensor> tensors;
    std::vector<float*> data;
  };

  std::shared_ptr<Shared> shared;
  std::shared_ptr<CommunicationThread> thread;
  std::shared_ptr<CommunicationThread::Queue> queue;
  CommunicatorOptions options;
  std::unique_ptr<Communicator> host;
  std::shared_ptr<LedgerRing> ledger;  // shared with the operations under way
  std::shared_ptr<Trace> trace;
  std::uint64_t sequence = 0;

  State(std::unique_ptr<Backend> backend, std::shared_ptr<CommunicationThread> runs_on,
        std::shared_ptr<AbortSignal> abort, CommunicatorOptions chosen,
        std::unique_ptr<Communicator> on_host)
      : shared(std::make_shared<Shared>(std::move(backend), std::move(abort))),
        thread(std::move(runs_on)),
        queue(thread->add_queue(chosen.lane)),
        options(std::move(chosen)),
        host(std::move(on_host)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { thread->remove(*queue); }

  int size() const { return shared->backend->size(); }
  UsageError refuse(CommOperation operation, const std::string& why, std::string hint) const;
  void check_memory(CommOperation operation, const Tensor& tensor) const;
  // Throws UsageError unless the arguments of a reduction fit each other.
  void check_parts(CommOperation operation, const std::vector<Tensor>& parts, const Tensor& out,
                   const SumPlan& plan) const;
  std::vector<std::size_t> checked_edges(CommOperation operation,
                                         const std::vector<std::int64_t>& edges,
                                         std::int64_t count) const;
  std::function<std::string()> text(const What& what) const;
  /// Numbers an operation and writes it to the ledger: its number there.
  std::uint64_t enqueue(const What& what);
  bool is_short(const What& what) const;
  Work start(const What& what, const Event& ready, Body body);
  /// The same for what the ranks have agreed on before.
  Work start(const What& what, const Event& ready, const std::shared_ptr<Prepared>& prepared);
  /// `entered`: see CommunicationThread::enter.
  Work hand_over(const What& what, const Event& ready, Body body, std::uint64_t number,
                 std::uint64_t entered);
  static Task observed(std::shared_ptr<Shared> shared, std::shared_ptr<LedgerRing> ledger,
                       std::shared_ptr<Trace> trace, std::uint64_t number, Body body, Wait& wait);
};

struct PreparedReduction::State {
  Communicator& group;
  std::vector<Tensor> parts;
  Tensor out;
  std::shared_ptr<const SumPlan> plan;
  std::shared_ptr<Prepared> prepared;  // null: carried out each time as if it were the first
};

}  // namespace lockstep
