// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <string>
#include <utility>

#include "collectives/communicator_state.h"
#include "lockstep/collectives/prepared_reduction.h"

namespace lockstep {
namespace {

// Of all ranks together; up to here a sum takes 0.2 ms at most, which is about the time of a change
// to another thread and back where cores are few.
constexpr std::size_t kShortBytes = std::size_t{8} << 20;

// How often wait_for() looks at the abort signal.
constexpr std::chrono::milliseconds kLook{20};

std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data()); }
std::size_t to_size(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

const char* to_string(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
  }
  return "unknown";
}

const char* to_string(CommOperation operation) noexcept {
  switch (operation) {
    case CommOperation::barrier:
      return "barrier";
    case CommOperation::allocate:
      return "allocate";
    case CommOperation::all_reduce:
      return "all_reduce";
    case CommOperation::reduce_parts:
      return "reduce_parts";
    case CommOperation::all_gather:
      return "all_gather";
    case CommOperation::broadcast:
      return "broadcast";
    case CommOperation::reduce_scatter:
      return "reduce_scatter";
    case CommOperation::all_gather_slices:
      return "all_gather_slices";
  }
  return "unknown";
}

// A body as it is seen from outside. Its arguments live in it: the caller's may be gone.
Task Communicator::State::observed(std::shared_ptr<Shared> shared,
                                   std::shared_ptr<LedgerRing> ledger, std::shared_ptr<Trace> trace,
                                   std::uint64_t number, Body body, Wait& wait) {
  const TraceSpan span(trace.get(), trace ? wait.operation() : std::string(), "communication");
  if (ledger) ledger->started(number, steady_ns());
  co_await body(*shared->backend, wait);
  if (ledger) ledger->ended(number, steady_ns());
}

UsageError Communicator::State::refuse(CommOperation operation, const std::string& why,
                                       std::string hint) const {
  return {"rank " + std::to_string(shared->backend->rank()) + ": " + to_string(operation) +
              " of group " + options.name + ": " + why,
          std::move(hint)};
}

void Communicator::State::check_memory(CommOperation operation, const Tensor& tensor) const {
  const Device device = shared->backend->device();
  if (tensor.device() != device) {
    throw refuse(operation, "a tensor on " + to_string(tensor.device()),
                 "pass tensors on " + to_string(device));
  }
  if (!tensor.defined() && tensor.size() > 0) {
    throw refuse(operation, "a tensor without memory", "pass a tensor that was allocated");
  }
}

void Communicator::State::check_parts(CommOperation operation, const std::vector<Tensor>& parts,
                                      const Tensor& out, const SumPlan& plan) const {
  const auto& parts_of_rank = plan.parts_of_rank;
  if (parts_of_rank.size() != to_size(size())) {
    throw refuse(operation,
                 "the plan is for " + std::to_string(parts_of_rank.size()) + " ranks, not " +
                     std::to_string(size()),
                 "make the plan with the size of this communicator");
  }
  const int own = parts_of_rank[to_size(shared->backend->rank())];
  if (parts.size() != to_size(own)) {
    throw refuse(operation,
                 std::to_string(parts.size()) + " parts, the plan wants " + std::to_string(own),
                 "give SumPlan::parts_of_rank[rank()] parts");
  }
  const int all = std::accumulate(parts_of_rank.begin(), parts_of_rank.end(), 0);
  const auto outside = [all](int part) { return part < 0 || part >= all; };
  if (outside(plan.result) || std::any_of(plan.adds.begin(), plan.adds.end(), [&](auto add) {
        return outside(add.into) || outside(add.from) || add.into == add.from;
      })) {
    throw refuse(operation, "the plan names a part that nobody gives",
                 "use ordered_plan or invariant_plan");
  }
  const auto check = [&](const Tensor& tensor) {
    check_memory(operation, tensor);
    if (tensor.dtype() == DType::f32 && tensor.size() == out.size()) return;
    throw refuse(operation,
                 "a part is " + to_string(tensor.shape()) + " " + to_string(tensor.dtype()) +
                     ", out is " + to_string(out.shape()) + " " + to_string(out.dtype()),
                 "all parts and out have the same number of f32 elements");
  };
  std::for_each(parts.begin(), parts.end(), check);
  check(out);
}

std::vector<std::size_t> Communicator::State::checked_edges(CommOperation operation,
                                                            const std::vector<std::int64_t>& edges,
                                                            std::int64_t count) const {
  if (edges.size() != to_size(size()) + 1 || edges.front() != 0 || edges.back() != count ||
      !std::is_sorted(edges.begin(), edges.end())) {
    throw refuse(operation,
                 "the slices do not cut " + std::to_string(count) + " elements into " +
                     std::to_string(size()) + " slices",
                 "give size() + 1 edges that rise from 0 to the number of elements");
  }
  return {edges.begin(), edges.end()};
}

// "rank 1: all_reduce #12 of group world (8 x f32)"; refers to nothing of this object.
std::function<std::string()> Communicator::State::text(const What& what) const {
  return [rank = shared->backend->rank(), number = sequence, name = options.name, what] {
    std::string text = "rank " + std::to_string(rank) + ": " + to_string(what.operation) + " #" +
                       std::to_string(number) + " of group " + name;
    if (what.operation != CommOperation::barrier) {
      text += " (" + std::to_string(what.count) + " x " + to_string(what.dtype) + ")";
    }
    return text;
  };
}

std::uint64_t Communicator::State::enqueue(const What& what) {
  ++sequence;
  if (!ledger) return 0;
  LedgerRecord record{.sequence = sequence,
                      .count = static_cast<std::uint64_t>(what.count),
                      .enqueued_ns = steady_ns(),
                      .operation = static_cast<std::uint8_t>(what.operation),
                      .dtype = static_cast<std::uint8_t>(what.dtype)};
  options.name.copy(record.group.data(), record.group.size());
  return ledger->enqueue(record);
}

bool Communicator::State::is_short(const What& what) const {
  return what.operation != CommOperation::allocate && what.bytes() * to_size(size()) <= kShortBytes;
}

Work Communicator::State::start(const What& what, const Event& ready, Body body) {
  const std::uint64_t number = enqueue(what);
  return hand_over(what, ready, std::move(body), number, 0);
}

Work Communicator::State::hand_over(const What& what, const Event& ready, Body body,
                                    std::uint64_t number, std::uint64_t entered) {
  const bool any_thread = shared->backend->any_thread();
  const auto [done, place] =
      thread->start(*queue,
                    {.ready = ready,
                     .text = text(what),
                     .timeout = options.timeout,
                     .abort = shared->abort,
                     .make =
                         [shared = shared, ledger = ledger, trace = trace, number,
                          body = std::move(body)](Wait& wait) mutable {
                           return observed(shared, ledger, trace, number, std::move(body), wait);
                         },
                     .any_thread = any_thread,
                     .is_short = is_short(what)},
                    entered);
  if (done.done()) return {done, sequence};
  shared->abort->watch(done);
  if (!any_thread) return {done, sequence};
  return {done, sequence, [weak = std::weak_ptr(thread), queue = queue, place = place] {
            if (const auto runs_it = weak.lock()) runs_it->help(*queue, place);
          }};
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): std::function owns what it holds
}

// Without memory from the heap, a coroutine or an event, as long as the ranks come together.
Work Communicator::State::start(const What& what, const Event& ready,
                                const std::shared_ptr<Prepared>& prepared) {
  const std::uint64_t number = enqueue(what);
  std::uint64_t entered = 0;
  if (shared->backend->any_thread() && is_short(what) && !trace && ready.done()) {
    entered = thread->enter(*queue);
  }
  if (entered != 0) {
    const std::int64_t began = ledger ? steady_ns() : 0;
    try {
      ready.wait();  // throws if it has failed
      if (prepared->begin()) {
        if (ledger) {
          ledger->started(number, began);
          ledger->ended(number, steady_ns());
        }
        return {thread->leave(*queue), sequence};
      }
    } catch (...) {
      return {thread->leave(*queue, std::current_exception()), sequence};
    }
  }
  const auto rest = [prepared](Backend&, Wait& wait) { return prepared->finish(wait); };
  return hand_over(what, ready, rest, number, entered);
}

Communicator::Communicator(std::unique_ptr<Backend> backend,
                           std::shared_ptr<CommunicationThread> thread,
                           std::shared_ptr<AbortSignal> abort, CommunicatorOptions options,
                           std::unique_ptr<Communicator> host)
    : state_(std::make_unique<State>(std::move(backend), std::move(thread), std::move(abort),
                                     std::move(options), std::move(host))) {}

Communicator::~Communicator() = default;

int Communicator::rank() const noexcept { return state_->shared->backend->rank(); }
int Communicator::size() const noexcept { return state_->size(); }
const std::string& Communicator::name() const noexcept { return state_->options.name; }
const char* Communicator::backend_name() const noexcept { return state_->shared->backend->name(); }
Device Communicator::device() const noexcept { return state_->shared->backend->device(); }
Communicator& Communicator::host() noexcept { return state_->host ? *state_->host : *this; }

void Communicator::observe(std::shared_ptr<LedgerRing> ledger,
                           std::shared_ptr<Trace> trace) noexcept {
  if (state_->host) state_->host->observe(ledger, trace);
  state_->ledger = std::move(ledger);
  state_->trace = std::move(trace);
}

Tensor Communicator::allocate(std::int64_t elements, DType dtype) {
  constexpr auto operation = CommOperation::allocate;
  if (elements < 0) {
    throw state_->refuse(operation, std::to_string(elements) + " elements", "ask for 0 or more");
  }
  const std::size_t bytes = to_size(elements) * size_of(dtype);
  // Shared: after an abort nobody waits for the operation's end.
  const auto memory = std::make_shared<std::shared_ptr<std::byte>>();
  state_
      ->start({.operation = operation, .count = elements, .dtype = dtype}, {},
              [memory, bytes](Backend& backend, Wait& wait) {
                return backend.allocate(bytes, *memory, wait);
              })
      .wait();
  std::byte* data = memory->get();
  return Tensor::borrow(data, {elements}, dtype, device(), std::move(*memory));
}

Work Communicator::all_reduce(Tensor inout, ReduceOp op, const Event& ready) {
  constexpr auto operation = CommOperation::all_reduce;
  state_->check_memory(operation, inout);
  const DType dtype = inout.dtype();
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::i64) {
    throw state_->refuse(operation, std::string("elements are ") + to_string(dtype),
                         "reduce f32, f64 or i64");
  }
  const State::What what{.operation = operation, .count = inout.size(), .dtype = dtype};
  return state_->start(what, ready, [inout = std::move(inout), op](Backend& backend, Wait& wait) {
    return backend.all_reduce(bytes_of(inout), to_size(inout.size()), inout.dtype(), op, wait);
  });
}

Work Communicator::reduce_parts(std::vector<Tensor> parts, Tensor out,
                                std::shared_ptr<const SumPlan> plan, const Event& ready) {
  const State::What what{
      .operation = CommOperation::reduce_parts, .count = out.size(), .dtype = DType::f32};
  state_->check_parts(what.operation, parts, out, *plan);
  return state_->start(what, ready,
                       [parts = State::Parts(std::move(parts)), out = std::move(out),
                        plan = std::move(plan)](Backend& backend, Wait& wait) {
                         return backend.reduce_parts(parts.data, out.as<float>(),
                                                     to_size(out.size()), *plan, wait);
                       });
}

PreparedReduction Communicator::prepare_reduce_parts(std::vector<Tensor> parts, Tensor out,
                                                     std::shared_ptr<const SumPlan> plan) {
  const State::What what{
      .operation = CommOperation::reduce_parts, .count = out.size(), .dtype = DType::f32};
  state_->check_parts(what.operation, parts, out, *plan);
  auto kept = std::make_unique<PreparedReduction::State>(
      PreparedReduction::State{*this, std::move(parts), std::move(out), std::move(plan), {}});
  // Shared: after an abort nobody waits for the operation's end.
  const auto prepared = std::make_shared<std::shared_ptr<Prepared>>();
  state_
      ->start(what, {},
              [prepared, parts = State::Parts(kept->parts), out = kept->out, plan = kept->plan](
                  Backend& backend, Wait& wait) {
                return backend.prepare_reduce_parts(parts.data, out.as<float>(),
                                                    to_size(out.size()), plan, *prepared, wait);
              })
      .wait();
  kept->prepared = std::move(*prepared);
  return PreparedReduction(std::move(kept));
}

PreparedReduction::PreparedReduction(std::unique_ptr<State> state) : state_(std::move(state)) {}
PreparedReduction::PreparedReduction(PreparedReduction&&) noexcept = default;
PreparedReduction& PreparedReduction::operator=(PreparedReduction&&) noexcept = default;
PreparedReduction::~PreparedReduction() = default;

Work PreparedReduction::start(const Event& ready) {
  if (!state_->prepared) {
    return state_->group.reduce_parts(state_->parts, state_->out, state_->plan, ready);
  }
  return state_->group.state_->start(
      {.operation = CommOperation::reduce_parts, .count = state_->out.size(), .dtype = DType::f32},
      ready, state_->prepared);
}

Work Communicator::reduce_scatter(std::vector<Tensor> parts, Tensor out,
                                  std::shared_ptr<const SumPlan> plan,
                                  const std::vector<std::int64_t>& edges, const Event& ready) {
  const State::What what{
      .operation = CommOperation::reduce_scatter, .count = out.size(), .dtype = DType::f32};
  state_->check_parts(what.operation, parts, out, *plan);
  return state_->start(
      what, ready,
      [parts = State::Parts(std::move(parts)), out = std::move(out), plan = std::move(plan),
       edges = state_->checked_edges(what.operation, edges, what.count)](Backend& backend,
                                                                         Wait& wait) {
        return backend.reduce_scatter(parts.data, out.as<float>(), to_size(out.size()), *plan,
                                      edges, wait);
      });
}

Work Communicator::all_gather_slices(Tensor inout, const std::vector<std::int64_t>& edges,
                                     const Event& ready) {
  constexpr auto operation = CommOperation::all_gather_slices;
  state_->check_memory(operation, inout);
  if (inout.dtype() != DType::f32) {
    throw state_->refuse(operation, std::string("elements are ") + to_string(inout.dtype()),
                         "gather slices of f32");
  }
  const State::What what{.operation = operation, .count = inout.size(), .dtype = DType::f32};
  return state_->start(
      what, ready,
      [inout = std::move(inout), edges = state_->checked_edges(operation, edges, what.count)](
          Backend& backend, Wait& wait) {
        return backend.all_gather_slices(inout.as<float>(), to_size(inout.size()), edges, wait);
      });
}

Work Communicator::all_gather(Tensor in, Tensor out, const Event& ready) {
  constexpr auto operation = CommOperation::all_gather;
  state_->check_memory(operation, in);
  state_->check_memory(operation, out);
  if (in.dtype() != out.dtype() || out.size() != in.size() * size()) {
    throw state_->refuse(operation,
                         "in is " + to_string(in.shape()) + " " + to_string(in.dtype()) +
                             ", out is " + to_string(out.shape()) + " " + to_string(out.dtype()),
                         "out has the type of in and size() times its elements");
  }
  const State::What what{.operation = operation, .count = in.size(), .dtype = in.dtype()};
  return state_->start(what, ready,
                       [in = std::move(in), out = std::move(out)](Backend& backend, Wait& wait) {
                         return backend.all_gather(bytes_of(in), bytes_of(out), in.bytes(), wait);
                       });
}

Work Communicator::broadcast(Tensor inout, int root, const Event& ready) {
  constexpr auto operation = CommOperation::broadcast;
  state_->check_memory(operation, inout);
  if (root < 0 || root >= size()) {
    throw state_->refuse(
        operation, "root " + std::to_string(root) + " of " + std::to_string(size()) + " ranks",
        "name a rank of the group");
  }
  const State::What what{.operation = operation, .count = inout.size(), .dtype = inout.dtype()};
  return state_->start(what, ready, [inout = std::move(inout), root](Backend& backend, Wait& wait) {
    return backend.broadcast(bytes_of(inout), inout.bytes(), root, wait);
  });
}

Work Communicator::barrier() {
  return state_->start({.operation = CommOperation::barrier}, {},
                       [](Backend& backend, Wait& wait) { return backend.barrier(wait); });
}

void Communicator::wait_for(const Event& event, const std::string& what) const {
  const auto began = std::chrono::steady_clock::now();
  while (!event.wait_for(kLook)) {
    state_->shared->abort->throw_if_raised();
    const auto waited = std::chrono::steady_clock::now() - began;
    if (waited < state_->options.timeout) continue;
    throw TimeoutError(
        "rank " + std::to_string(rank()) + ": " + what + ": gave up after " + seconds_text(waited),
        "see `nvidia-smi` and the kernel's log if the device hangs; timeout.collective sets the "
        "time");
  }
}

std::vector<std::string> Communicator::take_notes() {
  return state_->shared->backend->take_notes();
}

std::uint64_t Communicator::bytes_moved() const noexcept {
  return state_->shared->backend->bytes_moved();
}

}  // namespace lockstep
