// SPDX-License-Identifier: Apache-2.0
// The symbols of core/cuda/ in a build without CUDA.
#include "core/kernel_table.h"
#include "core/memory.h"
#include "core/stream_queue.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

DeviceError not_built(Device device) {
  return {"device " + to_string(device) + ": this build has no CUDA",
          "use device = cpu, or build with scripts/build cuda"};
}

}  // namespace

namespace detail {

std::unique_ptr<StreamQueue> make_cuda_stream(Device device, const std::string&) {
  throw not_built(device);
}

}  // namespace detail

namespace cuda {

std::shared_ptr<void> device_memory(Device device, std::size_t) { throw not_built(device); }
std::shared_ptr<void> pinned_memory(Device device, std::size_t) { throw not_built(device); }
void zero(Device device, void*, std::size_t) { throw not_built(device); }

}  // namespace cuda

namespace kernels {

const KernelTable& cuda_kernels() { throw not_built({.kind = DeviceKind::cuda, .index = 0}); }

}  // namespace kernels
}  // namespace lockstep
