// SPDX-License-Identifier: Apache-2.0
// Kernels in the preset cuda-fake: their twins on the host, in the stream's order.
#include "core/cuda/launch.h"

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "core/cuda/check.h"
#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace lockstep::cuda {
namespace {

constexpr std::size_t kMostArgsBytes = 32764;        // of sm_70 and later
constexpr unsigned kMostSharedBytes = 227U * 1024U;  // of sm_90, opted in

// What a device refuses before it starts a kernel.
bool fits(const Grid& grid) {
  const auto [bx, by, bz] = grid.blocks;
  const auto [tx, ty, tz] = grid.threads;
  const bool any = bx > 0 && by > 0 && bz > 0 && tx > 0 && ty > 0 && tz > 0;
  return any && bx <= 2147483647U && by <= 65535 && bz <= 65535 && tx <= 1024 && ty <= 1024 &&
         tz <= 64 && std::size_t{tx} * ty * tz <= 1024 && grid.shared_bytes <= kMostSharedBytes;
}

void run_twin(const std::string& name, const void* function, const void* args) {
  const fake::OnWorker mark;
  try {
    reinterpret_cast<void (*)(const void*)>(reinterpret_cast<std::uintptr_t>(function))(args);
  } catch (const std::exception& error) {
    fake::die("the twin of kernel " + name + " has thrown: " + error.what());
  }
}

}  // namespace

void launch(const char* name, const void* function, Grid grid, const void* args,
            std::size_t args_bytes, Stream& stream) {
  const std::string what = std::string("kernel ") + name;
  const auto refuse = [&](cudaError_t error) { check(fake::remember(error), what); };
  if (const cudaError_t error = fake::enter("launch kernel"); error != cudaSuccess) refuse(error);
  if (!fits(grid)) refuse(cudaErrorInvalidConfiguration);
  if (args_bytes > kMostArgsBytes) refuse(cudaErrorInvalidValue);
  auto* const native = static_cast<cudaStream_t>(stream.native());
  if (fake::launch_is_to_fault()) {
    refuse(fake::enqueue(native, [] { fake::fault(); }));
    return;
  }
  // The arguments are the kernel's from here on, as with cudaLaunchKernel.
  constexpr std::align_val_t kAlignment{64};
  const std::shared_ptr<void> copy(::operator new(args_bytes, kAlignment),
                                   [=](void* memory) { ::operator delete(memory, kAlignment); });
  std::memcpy(copy.get(), args, args_bytes);
  refuse(fake::enqueue(native, [name = std::string(name), function, copy] {
    run_twin(name, function, copy.get());
  }));
}

}  // namespace lockstep::cuda
