// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/machine.h"

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>
#include <utility>

namespace lockstep::fake {
namespace {

thread_local bool on_worker = false;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int device_of_thread = 0;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <typename Number>
Number number_in(const std::string& text, const char* what) {
  Number number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc{} || end != text.data() + text.size()) {
    die(std::string(what) + ": \"" + text + "\" is not a number");
  }
  return number;
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

Machine read_machine() {
  Machine machine;
  const std::string count = environment("LOCKSTEP_FAKE_GPUS");
  const std::string memory = environment("LOCKSTEP_FAKE_GPU_MEMORY");
  const int devices = count.empty() ? 2 : number_in<int>(count, "LOCKSTEP_FAKE_GPUS");
  machine.memory = memory.empty() ? std::size_t{4} << 30U
                                  : number_in<std::size_t>(memory, "LOCKSTEP_FAKE_GPU_MEMORY");
  const std::string pinned = environment("LOCKSTEP_FAKE_PINNED");
  machine.pinned = pinned.empty() ? std::numeric_limits<std::size_t>::max()
                                  : number_in<std::size_t>(pinned, "LOCKSTEP_FAKE_PINNED");
  machine.driver = environment("LOCKSTEP_FAKE_NO_DRIVER") != "1";
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) {
    // As the driver does: the list ends at the first number that names no device.
    for (const std::string& part : parts_of(visible)) {
      const int device = number_in<int>(part, "CUDA_VISIBLE_DEVICES");
      if (device < 0 || device >= devices) break;
      machine.devices.push_back(device);
    }
  } else {
    machine.devices.resize(static_cast<std::size_t>(devices));
    std::iota(machine.devices.begin(), machine.devices.end(), 0);
  }
  return machine;
}

struct Injected {
  long at = 0;
  cudaError_t error = cudaErrorUnknown;
};

class Faults {
 public:
  Faults() { set(environment("LOCKSTEP_FAKE_CUDA_FAIL")); }

  void set(const std::string& list) {
    const std::lock_guard lock(mutex_);
    injected_.clear();
    calls_.clear();
    faulted_ = false;
    for (const std::string& part : parts_of(list)) {
      const std::size_t colon = part.find(':');
      if (colon == std::string::npos) die("LOCKSTEP_FAKE_CUDA_FAIL: \"" + part + "\" has no colon");
      const std::size_t equals = part.find('=', colon);
      Injected injected;
      injected.at = number_in<long>(part.substr(colon + 1, equals - colon - 1), "call");
      if (equals != std::string::npos) {
        injected.error = static_cast<cudaError_t>(number_in<int>(part.substr(equals + 1), "error"));
      }
      injected_.emplace(part.substr(0, colon), injected);
    }
  }

  // The error that this call of `function` is to fail with.
  cudaError_t count(const std::string& function) {
    const std::lock_guard lock(mutex_);
    const long calls = ++calls_[function];
    const auto [first, last] = injected_.equal_range(function);
    for (auto i = first; i != last; ++i) {
      if (i->second.at == calls) return i->second.error;
    }
    return cudaSuccess;
  }

  std::atomic<bool> faulted_{false};

 private:
  std::mutex mutex_;
  std::multimap<std::string, Injected> injected_;
  std::map<std::string, long> calls_;
};

// Never destroyed: workers may still run while the process ends.
Faults& faults() {
  static Faults& instance = *new Faults;
  return instance;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText* text_of(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return &known;
  }
  return nullptr;
}

}  // namespace

const Machine& machine() {
  static const Machine& instance = *new Machine(read_machine());
  return instance;
}

int physical_device(int index) { return machine().devices.at(static_cast<std::size_t>(index)); }

int current_device() { return device_of_thread; }

void die(const std::string& message) {
  const std::string line = "fake CUDA: " + message + "\n";
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  std::abort();
}

void forbid_on_worker(const char* function) {
  if (!on_worker) return;
  die(std::string(function) + " inside a host function or a kernel, where CUDA forbids it");
}

OnWorker::OnWorker() { on_worker = true; }
OnWorker::~OnWorker() { on_worker = false; }

void set_cuda_faults(const std::string& list) { faults().set(list); }
bool faulted() { return faults().faulted_; }
bool launch_is_to_fault() { return faults().count("launch") != cudaSuccess; }
bool launch_is_to_hang() { return faults().count("hang") != cudaSuccess; }
void fault() { faults().faulted_ = true; }

cudaError_t enter(const char* function) {
  forbid_on_worker(function);
  if (!machine().driver) return cudaErrorInsufficientDriver;
  if (machine().devices.empty()) return cudaErrorNoDevice;
  if (faulted()) return cudaErrorIllegalAddress;
  return faults().count(function);
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace lockstep::fake

namespace fake = lockstep::fake;

cudaError_t cudaGetLastError() {
  fake::forbid_on_worker(__func__);
  if (fake::faulted()) return cudaErrorIllegalAddress;  // sticks
  return std::exchange(fake::last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  fake::forbid_on_worker(__func__);
  return fake::faulted() ? cudaErrorIllegalAddress : fake::last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  const fake::ErrorText* known = fake::text_of(error);
  return known == nullptr ? "unrecognized error code" : known->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const fake::ErrorText* known = fake::text_of(error);
  return known == nullptr ? "unrecognized error code" : known->text;
}

cudaError_t cudaGetDevice(int* device) {
  return fake::call(__func__, [&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = fake::device_of_thread;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return fake::call(__func__, [&] {
    if (device < 0 || device >= static_cast<int>(fake::machine().devices.size())) {
      return cudaErrorInvalidDevice;
    }
    fake::device_of_thread = device;
    return cudaSuccess;
  });
}
