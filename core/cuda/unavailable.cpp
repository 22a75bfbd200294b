// SPDX-License-Identifier: Apache-2.0
// The CUDA backend of a build without it: the same symbols, and what to do about it.
#include "core/copy.h"
#include "core/cuda/device.h"
#include "core/cuda/nvml.h"
#include "core/kernel_table.h"
#include "core/memory.h"
#include "core/stream_queue.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

DeviceError not_built(Device device) {
  return {"device " + to_string(device) + ": this build has no CUDA",
          "use device = cpu, or build with -DLOCKSTEP_CUDA=ON (scripts/build cuda)"};
}

}  // namespace

namespace detail {

std::unique_ptr<StreamQueue> make_cuda_stream(Device device, const std::string& name) {
  static_cast<void>(name);
  throw not_built(device);
}

}  // namespace detail

namespace cuda {

int device_count() { return 0; }

std::string device_report() {
  return "cuda: not built in (configure with -DLOCKSTEP_CUDA=ON, or scripts/build cuda)";
}

std::string device_name(int device) {
  throw not_built({.kind = DeviceKind::cuda, .index = device});
}

DeviceMemory memory_of(Device device) { throw not_built(device); }

std::string gemm_library() { return device_report(); }

std::string attention_library() { return "own"; }

FoundSensors find_sensors(Device device) {
  return {.sensors = nullptr, .reason = not_built(device).what()};
}

std::shared_ptr<void> device_memory(Device device, std::size_t bytes) {
  static_cast<void>(bytes);
  throw not_built(device);
}

std::shared_ptr<void> pinned_memory(Device device, std::size_t bytes) {
  static_cast<void>(bytes);
  throw not_built(device);
}

void zero(Device device, void* data, std::size_t bytes) {
  static_cast<void>(data);
  static_cast<void>(bytes);
  throw not_built(device);
}

void queue_copy(Stream& stream, const void* from, void* to, std::size_t bytes) {
  static_cast<void>(from);
  static_cast<void>(to);
  static_cast<void>(bytes);
  throw not_built(stream.device());
}

}  // namespace cuda

namespace kernels {

std::vector<std::string> cuda_notes(Stream& stream) {
  static_cast<void>(stream);
  return {};
}

const KernelTable& cuda_kernels() { throw not_built({.kind = DeviceKind::cuda, .index = 0}); }

}  // namespace kernels
}  // namespace lockstep
