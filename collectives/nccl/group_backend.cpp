// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/group_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <span>
#include <utility>

#include "collectives/mpi/combine.h"
#include "collectives/nccl/check.h"
#include "core/copy.h"
#include "core/cuda/current_device.h"
#include "core/host_memory.h"
#include "core/memory.h"
#include "lockstep/core/error.h"

namespace lockstep::nccl {
namespace {

constexpr std::size_t kHostBytes = std::size_t{1} << 20;
// For a communicator to go before what it uses is left to it for good.
constexpr std::chrono::seconds kGoneWithin{5};

// Its own memory, not that of the device's pool, which is ordered by another stream.
std::shared_ptr<void> own_memory(Device device, std::size_t bytes) {
  const std::string what = "NCCL's scratch memory on " + to_string(device);
  const cuda::CurrentDevice current(device, what);
  void* data = nullptr;
  cuda::check(cudaMalloc(&data, bytes), what);
  return {data, [](void* memory) { static_cast<void>(cudaFree(memory)); }};
}

bool is_failure(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    default:
      return ncclInt64;  // Communicator has checked
  }
}

ncclRedOp_t nccl_op(ReduceOp op) {
  if (op == ReduceOp::sum) return ncclSum;
  return op == ReduceOp::min ? ncclMin : ncclMax;
}

}  // namespace

// What is under way then can no longer be told, here or on other ranks, and may never end by
// itself. Also where a task is dropped in the middle.
class GroupBackend::AbortUnlessDone {
 public:
  explicit AbortUnlessDone(CommunicatorHandle& communicator) : communicator_(communicator) {}
  ~AbortUnlessDone() {
    if (!done_) communicator_.end(CommunicatorHandle::Ending::abort);
  }
  AbortUnlessDone(const AbortUnlessDone&) = delete;
  AbortUnlessDone& operator=(const AbortUnlessDone&) = delete;
  void done() noexcept { done_ = true; }

 private:
  CommunicatorHandle& communicator_;
  bool done_ = false;
};

GroupBackend::GroupBackend(int rank, int size, Device device, const ncclUniqueId& id, Wait& wait)
    : rank_(static_cast<std::size_t>(rank)),
      size_(static_cast<std::size_t>(size)),
      device_(device),
      buffers_(std::make_unique<Buffers>(Buffers{.stream = Stream(device, "nccl"),
                                                 .scratch = own_memory(device, kScratchBytes),
                                                 .host = host_memory(device, kHostBytes)})),
      communicator_(device) {
  try {
    communicator_.join(id, size, rank, wait);
  } catch (...) {
    release();
    throw;
  }
}

GroupBackend::~GroupBackend() { release(); }

void GroupBackend::release() noexcept {
  communicator_.end(CommunicatorHandle::Ending::destroy);
  // What hangs may still use them, and their end would wait for it.
  if (!communicator_.gone_within(kGoneWithin)) static_cast<void>(buffers_.release());
}

Tensor GroupBackend::at(void* data, std::size_t count, DType dtype) const {
  return Tensor::borrow(data, {static_cast<std::int64_t>(count)}, dtype, device_);
}

std::byte* GroupBackend::scratch(std::size_t offset) const {
  return static_cast<std::byte*>(buffers_->scratch.get()) + offset;
}

// What a rank sends where `bytes` go round a ring so often, a slice at a time.
void GroupBackend::count_ring(std::size_t bytes, std::size_t rounds) {
  count_moved(rounds * bytes * (size_ - 1) / size_);
}

Task GroupBackend::run(Task operation, Wait& wait) {
  if (communicator_.ended()) {
    throw CommError(wait.operation() + ": an earlier operation of the group has failed",
                    "look at the first message");
  }
  communicator_.take_back_unused();
  AbortUnlessDone guard(communicator_);
  co_await operation;
  guard.done();
}

Task GroupBackend::queue(const char* name, Call call, Wait& wait) {
  {
    const cuda::CurrentDevice current(device_, name);
    auto* const stream = static_cast<cudaStream_t>(buffers_->stream.native());
    const ncclResult_t given = call(communicator_.get(), stream);
    if (is_failure(given)) check(given, wait.operation() + ": " + name);
  }
  co_await wait.until([&] { return communicator_.ready(wait, name); });
}

Task GroupBackend::queue(std::vector<Message> messages, Wait& wait) {
  // A rank with an empty slice is left out on both sides.
  std::erase_if(messages, [](const Message& message) { return message.bytes == 0; });
  if (messages.empty()) co_return;
  for (const Message& message : messages) {
    if (message.sends) count_moved(message.bytes);
  }
  const auto give_all = [&](ncclComm_t communicator, cudaStream_t stream) {
    ncclResult_t result = ncclGroupStart();
    for (const Message& message : messages) {
      if (is_failure(result)) break;
      const int peer = static_cast<int>(message.peer);
      result = message.sends
                   ? ncclSend(message.data, message.bytes, ncclUint8, peer, communicator, stream)
                   : ncclRecv(message.data, message.bytes, ncclUint8, peer, communicator, stream);
    }
    const ncclResult_t ended = ncclGroupEnd();  // in any case, or the thread stays in the group
    return is_failure(result) ? result : ended;
  };
  co_await queue("send and receive", give_all, wait);
}

Task GroupBackend::settle(Wait& wait) {
  const Event done = buffers_->stream.record();
  co_await wait.until([&] {
    // First: where NCCL has failed the stream may look as if all were well.
    static_cast<void>(communicator_.ready(wait, "run"));
    return done.done();
  });
  done.wait();  // throws if the stream has failed
}

// Not collective here: what others have is of no use to this rank.
Task GroupBackend::allocate(std::size_t bytes, std::shared_ptr<std::byte>& memory, Wait& wait) {
  static_cast<void>(wait);
  std::shared_ptr<void> taken = device_memory(device_, bytes);
  zero_memory(device_, taken.get(), bytes);
  if (!communicator_.ended()) {
    const cuda::CurrentDevice current(device_, "register memory with NCCL");
    taken = communicator_.registered(std::move(taken), bytes);
  }
  memory = {taken, static_cast<std::byte*>(taken.get())};
  co_return;
}

Task GroupBackend::all_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                              Wait& wait) {
  // NCCL's minimum of a NaN and a number is the number.
  const bool is_real = dtype != DType::i64;
  return run(op != ReduceOp::sum && is_real ? combine_on_host(inout, count, dtype, op, wait)
                                            : queue_reduce(inout, count, dtype, op, wait),
             wait);
}

Task GroupBackend::queue_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                                Wait& wait) {
  if (count == 0) co_return;
  count_ring(count * size_of(dtype), 2);
  co_await queue(
      "ncclAllReduce",
      [=](ncclComm_t communicator, cudaStream_t stream) {
        return ncclAllReduce(inout, inout, count, nccl_type(dtype), nccl_op(op), communicator,
                             stream);
      },
      wait);
  co_await settle(wait);
}

Task GroupBackend::combine_on_host(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                                   Wait& wait) {
  const Combine combine = combine_in_order(dtype, op);
  const std::size_t width = size_of(dtype);
  const std::size_t most = kHostBytes / width / size_;
  auto* const host = static_cast<std::byte*>(buffers_->host.get());
  for (std::size_t begin = 0; begin < count; begin += most) {
    std::byte* const piece = inout + begin * width;
    const std::size_t size = std::min(most, count - begin);
    const std::size_t bytes = size * width;
    count_moved((size_ - 1) * bytes);
    co_await queue(
        "ncclAllGather",
        [=, this](ncclComm_t communicator, cudaStream_t stream) {
          return ncclAllGather(piece, scratch(), bytes, ncclUint8, communicator, stream);
        },
        wait);
    cuda::queue_copy(buffers_->stream, scratch(), host, size_ * bytes);
    co_await settle(wait);
    std::vector<const std::byte*> parts;
    for (std::size_t rank = 0; rank < size_; ++rank) parts.push_back(host + rank * bytes);
    combine(parts, host, size);
    cuda::queue_copy(buffers_->stream, host, piece, bytes);
    co_await settle(wait);
  }
}

Task GroupBackend::all_gather_slices(float* inout, std::size_t count,
                                     std::span<const std::size_t> edges, Wait& wait) {
  static_cast<void>(count);
  return run(queue_slices(inout, {edges.begin(), edges.end()}, wait), wait);
}

Task GroupBackend::queue_slices(float* inout, std::vector<std::size_t> edges, Wait& wait) {
  const auto slice_of = [&](std::size_t rank) {
    return std::span(inout + edges[rank], edges[rank + 1] - edges[rank]);
  };
  std::vector<Message> messages;
  for (std::size_t step = 1; step < size_; ++step) {
    const std::size_t to = (rank_ + step) % size_;
    const std::size_t from = (rank_ + size_ - step) % size_;
    messages.push_back({.sends = true,
                        .peer = to,
                        .data = slice_of(rank_).data(),
                        .bytes = slice_of(rank_).size_bytes()});
    messages.push_back({.sends = false,
                        .peer = from,
                        .data = slice_of(from).data(),
                        .bytes = slice_of(from).size_bytes()});
  }
  co_await queue(std::move(messages), wait);
  co_await settle(wait);
}

Task GroupBackend::all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each,
                              Wait& wait) {
  return run(queue_gather(in, out, bytes_each, wait), wait);
}

Task GroupBackend::queue_gather(const std::byte* in, std::byte* out, std::size_t bytes_each,
                                Wait& wait) {
  if (bytes_each == 0) co_return;
  count_moved((size_ - 1) * bytes_each);
  co_await queue(
      "ncclAllGather",
      [=](ncclComm_t communicator, cudaStream_t stream) {
        return ncclAllGather(in, out, bytes_each, ncclUint8, communicator, stream);
      },
      wait);
  co_await settle(wait);
}

Task GroupBackend::broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) {
  return run(queue_broadcast(inout, bytes, root, wait), wait);
}

Task GroupBackend::queue_broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) {
  if (bytes == 0) co_return;
  count_ring(bytes, 1);
  co_await queue(
      "ncclBroadcast",
      [=](ncclComm_t communicator, cudaStream_t stream) {
        return ncclBroadcast(inout, inout, bytes, ncclUint8, root, communicator, stream);
      },
      wait);
  co_await settle(wait);
}

// A sum that nobody reads.
Task GroupBackend::barrier(Wait& wait) {
  return run(queue_reduce(scratch(), 1, DType::i64, ReduceOp::sum, wait), wait);
}

}  // namespace lockstep::nccl
