// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/launch_twin.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "tests/fakes/cuda/device_view.h"
#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace lockstep::fake {
namespace {

constexpr std::size_t kMostArgsBytes = 32764;        // of sm_70 and later
constexpr unsigned kMostSharedBytes = 227U * 1024U;  // of sm_90, opted in

// What a device refuses before it starts a kernel.
bool fits(const cuda::Grid& grid) {
  const auto [bx, by, bz] = grid.blocks;
  const auto [tx, ty, tz] = grid.threads;
  const bool any = bx > 0 && by > 0 && bz > 0 && tx > 0 && ty > 0 && tz > 0;
  return any && bx <= 2147483647U && by <= 65535 && bz <= 65535 && tx <= 1024 && ty <= 1024 &&
         tz <= 64 && std::size_t{tx} * ty * tz <= 1024 && grid.shared_bytes <= kMostSharedBytes;
}

void run_twin(const std::string& name, const void* function, const void* args) {
  const OnWorker mark;
  try {
    reinterpret_cast<void (*)(const void*)>(reinterpret_cast<std::uintptr_t>(function))(args);
  } catch (const std::exception& error) {
    die("the twin of kernel " + name + " has thrown: " + error.what());
  }
}

[[noreturn]] void hang() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

cudaError_t launch_twin(const char* name, const void* function, const cuda::Grid& grid,
                        const void* args, std::size_t args_bytes, cudaStream_t stream) {
  return call("launch kernel", [&] {
    if (!fits(grid)) return cudaErrorInvalidConfiguration;
    if (args_bytes > kMostArgsBytes) return cudaErrorInvalidValue;
    if (launch_is_to_fault()) return enqueue(stream, [] { fault(); });
    if (launch_is_to_hang()) return enqueue(stream, [] { hang(); });
    // The arguments are the kernel's from here on, as with cudaLaunchKernel.
    constexpr std::align_val_t kAlignment{64};
    const std::shared_ptr<void> copy(::operator new(args_bytes, kAlignment),
                                     [=](void* memory) { ::operator delete(memory, kAlignment); });
    std::memcpy(copy.get(), args, args_bytes);
    view_arguments(copy.get(), args_bytes);
    return enqueue(stream, [name = std::string(name), function, copy] {
      run_twin(name, function, copy.get());
    });
  });
}

}  // namespace lockstep::fake
