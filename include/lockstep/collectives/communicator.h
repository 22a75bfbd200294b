// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/sum_plan.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep {

class Backend;              // collectives/backend.h
class AbortSignal;          // collectives/abort_signal.h
class CommunicationThread;  // collectives/communication_thread.h
class LedgerRing;
class PreparedReduction;  // lockstep/collectives/prepared_reduction.h
class Trace;

enum class ReduceOp : std::uint8_t { sum, min, max };
const char* to_string(ReduceOp op) noexcept;

/// What an operation is, in messages and in the ledger; the numbers are those of its file.
enum class CommOperation : std::uint8_t {
  barrier = 1,
  allocate = 2,
  all_reduce = 3,
  reduce_parts = 4,
  all_gather = 5,
  broadcast = 6,
  reduce_scatter = 7,
  all_gather_slices = 8,
};
const char* to_string(CommOperation operation) noexcept;

/// One operation under way; keeps its tensors alive.
class Work {
 public:
  /// `help`, if any, may run the operation on a thread that waits for it.
  Work(Event event, std::uint64_t sequence, std::function<void()> help = {})
      : event_(std::move(event)), sequence_(sequence), help_(std::move(help)) {}
  /// For Stream::wait.
  const Event& event() const noexcept { return event_; }
  bool done() const noexcept { return event_.done(); }
  /// The host waits, and helps where it can. Throws CommError at the group's deadline or when a
  /// peer is lost.
  void wait() const {
    if (help_ && !event_.done()) help_();
    event_.wait();
  }
  /// Position in the communicator's order, from 1.
  std::uint64_t sequence() const noexcept { return sequence_; }

 private:
  Event event_;
  std::uint64_t sequence_;
  std::function<void()> help_;
};

/// What goes first where groups compete for the communication thread and the network: the next
/// layer waits for its tensor group, a decision for the job's, and gradients have until the end of
/// the step.
enum class Lane : std::uint8_t { tensor, control, data };

struct CommunicatorOptions {
  std::string name = "world";  // for messages and the ledger
  Lane lane = Lane::data;
  std::chrono::nanoseconds timeout = std::chrono::minutes(5);
};

/// Collective operations of one group of ranks.
///
/// Every rank calls the same operations in the same order, from one thread at a time; each starts
/// after `ready` and after the one before it, and runs on the communication thread, beside those of
/// other groups. Public calls check, number, count, trace and write to the ledger; the backend
/// moves bytes. With one rank all of them are the identity.
class Communicator {
 public:
  /// `host`: see host(); for a backend whose tensors do not lie in the memory of the host.
  Communicator(std::unique_ptr<Backend> backend, std::shared_ptr<CommunicationThread> thread,
               std::shared_ptr<AbortSignal> abort, CommunicatorOptions options,
               std::unique_ptr<Communicator> host = {});
  ~Communicator();  // frees; never communicates
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  const std::string& name() const noexcept;
  /// "local", "shm", "mpi", "nccl", or "shm+mpi" for two levels.
  const char* backend_name() const noexcept;
  /// Where the tensors of its operations lie.
  Device device() const noexcept;
  /// The same ranks, for tensors in the memory of the host: what the ranks tell each other beside
  /// gradients and activations. This group itself on the CPU, else one with an order of its own.
  Communicator& host() noexcept;

  /// Operations from now on are written to these; null is none.
  void observe(std::shared_ptr<LedgerRing> ledger, std::shared_ptr<Trace> trace) noexcept;

  /// Memory of this rank in which reduce_parts works without copies, zero-filled and aligned to 64
  /// bytes. Collective: every rank asks for the same size, in the same order as all operations.
  Tensor allocate(std::int64_t elements, DType dtype);

  /// inout = the reduction over ranks, the same bits everywhere; in rank order, except that large
  /// f32 sums of several hosts are first made on each host, and that between GPUs the order is
  /// NCCL's own. f32, f64, i64.
  Work all_reduce(Tensor inout, ReduceOp op, const Event& ready = {});

  /// out = the sum that `plan` makes of all ranks' parts. All parts of all ranks and `out` have the
  /// same number of f32 elements and lie in memory from allocate(); `out` may be one of the parts.
  /// What the other parts contain afterwards is not specified. This rank gives
  /// plan->parts_of_rank[rank()] of them.
  Work reduce_parts(std::vector<Tensor> parts, Tensor out, std::shared_ptr<const SumPlan> plan,
                    const Event& ready = {});

  /// For a reduce_parts that is repeated. Collective, and returns when all ranks have called it.
  PreparedReduction prepare_reduce_parts(std::vector<Tensor> parts, Tensor out,
                                         std::shared_ptr<const SumPlan> plan);

  /// reduce_parts, of which this rank needs only its slice: elements [edges[rank()],
  /// edges[rank() + 1]) of `out`. What the rest of `out` contains is not specified. `edges`: size()
  /// + 1 of them, the same on every rank, rising from 0 to out.size().
  Work reduce_scatter(std::vector<Tensor> parts, Tensor out, std::shared_ptr<const SumPlan> plan,
                      const std::vector<std::int64_t>& edges, const Event& ready = {});

  /// Elements [edges[r], edges[r + 1]) of `inout` become those of rank r; f32, from allocate().
  Work all_gather_slices(Tensor inout, const std::vector<std::int64_t>& edges,
                         const Event& ready = {});

  /// out [size()·n] = every rank's in [n], in rank order; any type.
  Work all_gather(Tensor in, Tensor out, const Event& ready = {});

  /// inout = that of rank `root`; any type.
  Work broadcast(Tensor inout, int root, const Event& ready = {});

  Work barrier();

  /// Waits on this thread for `event`, e.g. the work of a device, which says nothing where it
  /// hangs. Throws what the event has failed with; CommError when the group is aborted, and "rank
  /// 1: <what>: gave up after 60 s" when the group's timeout has passed. Not collective; any
  /// thread.
  void wait_for(const Event& event, const std::string& what) const;

  /// What a reader should know of the transport, a line each, once: what it does without, and why.
  /// Any thread.
  std::vector<std::string> take_notes();

  /// Bytes this rank has sent or stored for others so far.
  std::uint64_t bytes_moved() const noexcept;

 private:
  friend class PreparedReduction;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
