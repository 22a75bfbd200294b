// SPDX-License-Identifier: Apache-2.0
#include "collectives/local/lone_rank_backend.h"

#include "core/kernels.h"
#include "core/memory.h"

namespace lockstep {
namespace {

std::size_t to_size(int number) { return static_cast<std::size_t>(number); }

}  // namespace

Tensor LoneRankBackend::tensor_at(void* data, std::size_t count, DType dtype) const {
  return Tensor::borrow(data, {static_cast<std::int64_t>(count)}, dtype, device());
}

Task LoneRankBackend::settle(Wait& wait) {
  const Event done = stream_.record();
  co_await wait.until([&done] { return done.done(); });
  done.wait();
}

Task LoneRankBackend::allocate(std::size_t bytes, std::shared_ptr<std::byte>& memory, Wait& wait) {
  static_cast<void>(wait);
  const std::shared_ptr<void> taken = device_memory(device(), bytes);
  zero_memory(device(), taken.get(), bytes);
  memory = {taken, static_cast<std::byte*>(taken.get())};
  co_return;
}

Task LoneRankBackend::all_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                                 Wait& wait) {
  static_cast<void>(inout);
  static_cast<void>(count);
  static_cast<void>(dtype);
  static_cast<void>(op);
  static_cast<void>(wait);
  co_return;
}

Task LoneRankBackend::reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                                   const SumPlan& plan, Wait& wait) {
  const auto part = [&](int number) {
    return tensor_at(parts[to_size(number)], count, DType::f32);
  };
  const Tensor sum = tensor_at(out, count, DType::f32);
  const bool is_narrow = plan.sum_type != DType::f32;
  const bool is_there = plan.adds.empty() && part(plan.result).data() == out;
  if (is_there && !is_narrow) co_return;
  for (const SumPlan::Add& add : plan.adds) kernels::add(stream_, part(add.from), part(add.into));
  kernels::copy(stream_, part(plan.result), sum);
  if (is_narrow) kernels::round(stream_, sum, plan.sum_type);
  co_await settle(wait);
}

Task LoneRankBackend::reduce_scatter(std::span<float* const> parts, float* out, std::size_t count,
                                     const SumPlan& plan, std::span<const std::size_t> edges,
                                     Wait& wait) {
  static_cast<void>(edges);
  co_await reduce_parts(parts, out, count, plan, wait);
}

Task LoneRankBackend::all_gather_slices(float* inout, std::size_t count,
                                        std::span<const std::size_t> edges, Wait& wait) {
  static_cast<void>(inout);
  static_cast<void>(count);
  static_cast<void>(edges);
  static_cast<void>(wait);
  co_return;
}

Task LoneRankBackend::all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each,
                                 Wait& wait) {
  if (in == out || bytes_each == 0) co_return;
  // The kernel reads it only.
  kernels::copy(stream_, tensor_at(const_cast<std::byte*>(in), bytes_each, DType::u8),
                tensor_at(out, bytes_each, DType::u8));
  co_await settle(wait);
}

Task LoneRankBackend::broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) {
  static_cast<void>(inout);
  static_cast<void>(bytes);
  static_cast<void>(root);
  static_cast<void>(wait);
  co_return;
}

Task LoneRankBackend::barrier(Wait& wait) {
  static_cast<void>(wait);
  co_return;
}

}  // namespace lockstep
