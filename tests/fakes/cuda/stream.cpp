// SPDX-License-Identifier: Apache-2.0
// Streams of the fake runtime: a queue and a worker thread each, so that work is as asynchronous,
// and as unordered across streams, as on a device. Memory of a "device" is the host's, so a race
// between two streams that no event orders is one that ThreadSanitizer can see.
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace fake = lockstep::fake;

struct CUstream_st {
  struct Job {
    std::function<void()> run;
    bool always = false;  // also after a kernel's fault
  };

  int device = 0;
  int priority = 0;
  unsigned flags = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> queue;
  bool running = false;
  bool stopping = false;
  const char* holder = nullptr;
  std::thread worker;

  void push(Job job) {
    {
      const std::lock_guard lock(mutex);
      if (holder != nullptr) {
        fake::die(std::string("work for a stream while ") + holder +
                  " in front of it has given ncclInProgress: poll ncclCommGetAsyncError first");
      }
      queue.push_back(std::move(job));
    }
    changed.notify_all();
  }

  bool idle() {
    const std::lock_guard lock(mutex);
    return queue.empty() && !running;
  }

  void drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return queue.empty() && !running; });
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      {
        const Job job = std::move(queue.front());
        queue.pop_front();
        running = true;
        lock.unlock();
        if (job.always || !fake::faulted()) job.run();
      }
      lock.lock();
      running = false;
      changed.notify_all();
    }
  }
};

// One cudaEventRecord; a wait is for the record that was the last when it was asked for.
struct Record {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::chrono::steady_clock::time_point time;

  bool reached() {
    const std::lock_guard lock(mutex);
    return done;
  }
  void reach() {
    {
      const std::lock_guard lock(mutex);
      done = true;
      time = std::chrono::steady_clock::now();
    }
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return done; });
  }
};

struct CUevent_st {
  int device = 0;
  bool timed = true;
  std::mutex mutex;
  std::shared_ptr<Record> record;  // null: never recorded, which counts as reached

  std::shared_ptr<Record> latest() {
    const std::lock_guard lock(mutex);
    return record;
  }
};

namespace {

// Handles that live. Never destroyed: workers may still run while the process ends.
struct Handles {
  std::mutex mutex;
  std::map<cudaStream_t, std::shared_ptr<CUstream_st>> streams;
  std::set<cudaEvent_t> events;
};
Handles& handles() {
  static Handles& instance = *new Handles;
  return instance;
}

bool is_default(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

// Null for the default streams, which Lockstep has no use for: a call that forgot its stream.
std::shared_ptr<CUstream_st> find(const char* function, cudaStream_t stream) {
  if (is_default(stream)) return nullptr;
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().streams.find(stream);
  if (found == handles().streams.end()) {
    fake::die(std::string(function) + " with a stream that does not exist any more");
  }
  return found->second;
}

bool event_lives(const char* function, cudaEvent_t event) {
  if (event == nullptr) return false;
  const std::lock_guard lock(handles().mutex);
  if (!handles().events.contains(event)) {
    fake::die(std::string(function) + " with an event that does not exist any more");
  }
  return true;
}

std::vector<std::shared_ptr<CUstream_st>> streams_of(int device, bool only_blocking) {
  std::vector<std::shared_ptr<CUstream_st>> streams;
  const std::lock_guard lock(handles().mutex);
  for (const auto& [handle, stream] : handles().streams) {
    if (device >= 0 && stream->device != device) continue;
    if (only_blocking && (stream->flags & cudaStreamNonBlocking) != 0) continue;
    streams.push_back(stream);
  }
  return streams;
}

cudaError_t status() { return fake::faulted() ? cudaErrorIllegalAddress : cudaSuccess; }

cudaError_t create_stream(cudaStream_t* handle, unsigned flags, int priority) {
  if (handle == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0) {
    return cudaErrorInvalidValue;
  }
  auto stream = std::make_shared<CUstream_st>();
  stream->device = fake::current_device();
  stream->flags = flags;
  stream->priority = priority;
  stream->worker = std::thread([state = stream.get()] { state->work(); });
  *handle = stream.get();
  const std::lock_guard lock(handles().mutex);
  handles().streams.emplace(*handle, std::move(stream));
  return cudaSuccess;
}

cudaError_t create_event(cudaEvent_t* handle, unsigned flags) {
  if (handle == nullptr) return cudaErrorInvalidValue;
  auto event = std::make_unique<CUevent_st>();
  event->device = fake::current_device();
  event->timed = (flags & cudaEventDisableTiming) == 0;
  const std::lock_guard lock(handles().mutex);
  *handle = event.release();
  handles().events.insert(*handle);
  return cudaSuccess;
}

// The thread that runs host functions. Never ends: workers may still use it while the process does.
class HostFunctions {
 public:
  HostFunctions() {
    std::thread([this] { work(); }).detach();
  }

  void run(cudaHostFn_t function, void* data) {
    Call call{.function = function, .data = data};
    std::unique_lock lock(mutex_);
    calls_.push_back(&call);
    changed_.notify_all();
    changed_.wait(lock, [&] { return call.done; });
  }

 private:
  struct Call {
    cudaHostFn_t function;
    void* data;
    bool done = false;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !calls_.empty(); });
      Call& call = *calls_.front();
      calls_.pop_front();
      lock.unlock();
      {
        const fake::OnWorker mark;
        call.function(call.data);
      }
      lock.lock();
      call.done = true;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call*> calls_;
};
HostFunctions& host_functions() {
  static HostFunctions& instance = *new HostFunctions;
  return instance;
}

// cuStreamWaitValue32, "greater or equal" alone: the stream goes on when the word is large enough.
int wait_value(cudaStream_t stream, unsigned long long address, std::uint32_t value,
               unsigned flags) {
  constexpr int invalid_value = 1;
  const auto* const word = reinterpret_cast<const std::uint32_t*>(address);
  if (flags != 0 || fake::device_of(stream) < 0) return invalid_value;
  fake::check_reachable("cuStreamWaitValue32", "the word", fake::device_of(stream), word,
                        sizeof *word);
  const cudaError_t queued = fake::enqueue(stream, [word, value] {
    while (std::atomic_ref(*const_cast<std::uint32_t*>(word)).load() < value) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  return queued == cudaSuccess ? 0 : invalid_value;
}

}  // namespace

namespace lockstep::fake {

cudaError_t enqueue(cudaStream_t stream, std::function<void()> task) {
  const auto state = find("work", stream);
  if (!state) return cudaErrorInvalidResourceHandle;
  state->push({.run = std::move(task)});
  return cudaSuccess;
}

int device_of(cudaStream_t stream) {
  const auto state = find("work", stream);
  return state ? state->device : -1;
}

void hold(cudaStream_t stream, const char* holder) {
  const auto state = find("hold", stream);
  const std::lock_guard lock(state->mutex);
  state->holder = holder;
}

void drain_stream(cudaStream_t stream) {
  if (const auto state = find("work", stream)) state->drain();
}

void drain(int device) {
  for (const auto& stream : streams_of(device, false)) stream->drain();
}

void drain_blocking(int device) {
  for (const auto& stream : streams_of(device, true)) stream->drain();
}

}  // namespace lockstep::fake

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return fake::call(__func__, [&] { return create_stream(stream, cudaStreamDefault, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return fake::call(__func__, [&] { return create_stream(stream, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return fake::call(__func__, [&] { return create_stream(stream, flags, priority); });
}

// Its work is done first. A real one only promises that it will be.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return fake::call(__func__, [&] {
    const auto stream = find("cudaStreamDestroy", handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    {
      const std::lock_guard lock(handles().mutex);
      handles().streams.erase(handle);
    }
    {
      const std::lock_guard lock(stream->mutex);
      stream->stopping = true;
    }
    stream->changed.notify_all();
    stream->worker.join();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return fake::call(__func__, [&] {
    const auto stream = find("cudaStreamSynchronize", handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    stream->drain();
    return status();
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return fake::call(__func__, [&] {
    const auto stream = find("cudaStreamQuery", handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    return stream->idle() ? status() : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return fake::call(__func__, [&] {
    const auto stream = find("cudaStreamGetPriority", handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *priority = stream->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return fake::call(__func__, [&] {
    const auto stream = find("cudaStreamGetFlags", handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *flags = stream->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return fake::call(__func__, [&] {
    const auto stream = find("cudaStreamGetDevice", handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *device = stream->device;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return fake::call(__func__, [&] {
    const auto stream = find("cudaStreamWaitEvent", handle);
    if (!stream || !event_lives("cudaStreamWaitEvent", event)) {
      return cudaErrorInvalidResourceHandle;
    }
    if (const auto record = event->latest()) stream->push({.run = [record] { record->wait(); }});
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return fake::call(__func__, [&] { return create_event(event, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return fake::call(__func__, [&] { return create_event(event, flags); });
}

// Waits for a record in flight stay good: they hold the record.
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return fake::call(__func__, [&] {
    if (!event_lives("cudaEventDestroy", event)) return cudaErrorInvalidResourceHandle;
    {
      const std::lock_guard lock(handles().mutex);
      handles().events.erase(event);
    }
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return fake::call(__func__, [&] {
    const auto stream = find("cudaEventRecord", handle);
    if (!stream || !event_lives("cudaEventRecord", event) || stream->device != event->device) {
      return cudaErrorInvalidResourceHandle;
    }
    auto record = std::make_shared<Record>();
    {
      const std::lock_guard lock(event->mutex);
      event->record = record;
    }
    stream->push({.run = [record] { record->reach(); }, .always = true});
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return fake::call(__func__, [&] {
    if (!event_lives("cudaEventQuery", event)) return cudaErrorInvalidResourceHandle;
    const auto record = event->latest();
    return !record || record->reached() ? status() : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return fake::call(__func__, [&] {
    if (!event_lives("cudaEventSynchronize", event)) return cudaErrorInvalidResourceHandle;
    if (const auto record = event->latest()) record->wait();
    return status();
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return fake::call(__func__, [&] {
    if (!event_lives("cudaEventElapsedTime", start) || !event_lives("cudaEventElapsedTime", end)) {
      return cudaErrorInvalidResourceHandle;
    }
    const auto from = start->latest();
    const auto to = end->latest();
    if (!start->timed || !end->timed || !from || !to) return cudaErrorInvalidResourceHandle;
    if (!from->reached() || !to->reached()) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
    return cudaSuccess;
  });
}

// All streams' on one thread, one after another, as a driver may do it: one that waits for what
// another does waits for ever.
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return fake::call(__func__, [&] {
    if (function == nullptr) return cudaErrorInvalidValue;
    return fake::enqueue(handle, [function, data] { host_functions().run(function, data); });
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return fake::call(__func__, [&] {
    if (symbol == nullptr || function == nullptr) return cudaErrorInvalidValue;
    const bool known = std::string(symbol) == "cuStreamWaitValue32";
    *function = known ? reinterpret_cast<void*>(&wait_value) : nullptr;
    if (result != nullptr) {
      *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
  });
}

// Kernels of ours go through lockstep::cuda::launch; nothing else can be run here.
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return fake::call(__func__, [] { return cudaErrorInvalidDeviceFunction; });
}
