// SPDX-License-Identifier: Apache-2.0
#include "core/stream_queue.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda/attention_choice.h"
#include "core/cuda/current_device.h"
#include "core/cuda/gemm_context.h"
#include "core/memory.h"

namespace lockstep::detail {
namespace {

using Task = std::function<void()>;

// How long the end of a stream waits for its work. What hangs longer is left, with all that it may
// still use: whoever ends the process wants to end it.
constexpr std::chrono::seconds kLastWork{10};
constexpr std::chrono::microseconds kAskDevice{100};

// The first failure of a stream's tasks. They and the points behind them have numbers, so that a
// point before the failure is reached all the same.
class Failure {
 public:
  void note(std::uint64_t number, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    number_ = number;
    failed_.store(true, std::memory_order_release);
  }

  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  void throw_if_before(std::uint64_t number) const {
    if (!failed()) return;
    const std::lock_guard lock(mutex_);
    if (number_ < number) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  std::uint64_t number_ = 0;
};

struct HostTask;

// Tasks that have run. What they hold may call CUDA when it goes, which a host function must not
// do: a thread of ours lets them go.
class SpentTasks {
 public:
  void add(std::unique_ptr<HostTask> task);
  void clear();

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<HostTask>> tasks_;
};

// A task on its way through the driver, which must not see an exception.
struct HostTask {
  Task body;
  std::shared_ptr<Failure> failure;
  std::uint64_t number;
  SpentTasks* spent;

  static void CUDART_CB run(void* raw) {
    std::unique_ptr<HostTask> task(static_cast<HostTask*>(raw));
    if (!task->failure->failed()) {
      try {
        task->body();
      } catch (...) {
        task->failure->note(task->number, std::current_exception());
      }
    }
    SpentTasks& spent = *task->spent;
    spent.add(std::move(task));
  }
};

void SpentTasks::add(std::unique_ptr<HostTask> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
}

void SpentTasks::clear() {
  std::vector<std::unique_ptr<HostTask>> gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(tasks_);
  }
}

void launch_host(cudaStream_t stream, Task body, std::shared_ptr<Failure> failure,
                 std::uint64_t number, SpentTasks& spent) {
  auto task = std::make_unique<HostTask>(HostTask{
      .body = std::move(body), .failure = std::move(failure), .number = number, .spent = &spent});
  cuda::check(cudaLaunchHostFunc(stream, &HostTask::run, task.get()), "queue a host function");
  static_cast<void>(task.release());
}

class CudaStreamHandle {
 public:
  explicit CudaStreamHandle(Device device) {
    const cuda::CurrentDevice current(device, "stream on " + to_string(device));
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                "make a stream on " + to_string(device));
  }
  ~CudaStreamHandle() {
    if (stream_ != nullptr && idle_within(kLastWork)) cudaStreamDestroy(stream_);
  }
  CudaStreamHandle(const CudaStreamHandle&) = delete;
  CudaStreamHandle& operator=(const CudaStreamHandle&) = delete;
  cudaStream_t get() const noexcept { return stream_; }

  /// Whether its work is over, or has failed, after `limit` at most.
  bool idle_within(std::chrono::nanoseconds limit) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (cudaStreamQuery(stream_) == cudaErrorNotReady) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kAskDevice);
    }
    return true;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

// What points need when their stream is gone.
struct Shared {
  explicit Shared(Device device) : notifier(device) {}
  SpentTasks spent;           // first: the streams' last tasks go there
  CudaStreamHandle notifier;  // host functions that wait for a point and hold up nothing else
  std::shared_ptr<Failure> failure = std::make_shared<Failure>();
};

class CudaPoint final : public DevicePoint {
 public:
  CudaPoint(std::shared_ptr<Shared> shared, cudaStream_t stream, std::uint64_t number)
      : shared_(std::move(shared)), number_(number) {
    cuda::check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "make an event");
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status == cudaSuccess) return;
    cudaEventDestroy(event_);
    cuda::check(status, "record an event");
  }
  ~CudaPoint() override { cudaEventDestroy(event_); }

  bool reached() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    cuda::check(status, "work before an event");
    shared_->failure->throw_if_before(number_);
    return true;
  }

  void wait() const override {
    cuda::check(cudaEventSynchronize(event_), "work before an event");
    shared_->failure->throw_if_before(number_);
  }

  void notify(std::function<void(std::exception_ptr)> then) const override {
    cuda::check(cudaStreamWaitEvent(shared_->notifier.get(), event_, 0), "wait for an event");
    launch_host(
        shared_->notifier.get(),
        [failure = shared_->failure, number = number_, then = std::move(then)] {
          std::exception_ptr error;
          try {
            failure->throw_if_before(number);
          } catch (...) {
            error = std::current_exception();
          }
          then(error);
        },
        std::make_shared<Failure>(), 0, shared_->spent);
  }

  cudaEvent_t native() const noexcept { return event_; }
  bool is_of(const std::shared_ptr<Shared>& stream) const noexcept { return shared_ == stream; }
  /// Throws what ended the stream's tasks before the point, once it is reached.
  void check_tasks() const { shared_->failure->throw_if_before(number_); }

 private:
  std::shared_ptr<Shared> shared_;
  std::uint64_t number_;
  cudaEvent_t event_ = nullptr;
};

// Words that devices wait for. They are kept for the next: cudaFreeHost waits for all work of a
// device, also for that which waits for a word. Never destroyed, as other memory of devices.
class Words {
 public:
  static Words& all() {
    static auto& words = *new Words;
    return words;
  }

  /// A word that is 0. Given back when its last user is gone, without a call of CUDA.
  std::shared_ptr<std::uint32_t> take(Device device) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) allocate(device);
    std::uint32_t* const word = free_.back();
    free_.pop_back();
    *word = 0;
    return {word, [this](std::uint32_t* spent) {
              const std::lock_guard give(mutex_);
              free_.push_back(spent);
            }};
  }

 private:
  void allocate(Device device) {
    constexpr std::size_t count = 1024;
    blocks_.push_back(cuda::pinned_memory(device, count * sizeof(std::uint32_t)));
    auto* const first = static_cast<std::uint32_t*>(blocks_.back().get());
    for (std::size_t i = 0; i < count; ++i) free_.push_back(first + i);
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> blocks_;
  std::vector<std::uint32_t*> free_;
};

// Lets a stream wait for the host without a host function that waits, which would hold up those of
// all other streams: the driver may run them on one thread. The driver's function is looked up at
// run time, as nothing of it is linked; false where it is too old.
bool wait_for_word(cudaStream_t stream, const std::uint32_t* word) {
  using Function = int (*)(cudaStream_t, unsigned long long, std::uint32_t, unsigned);  // in cuda.h
  static const Function function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found,
                                                                12000, cudaEnableDefault, &result);
    if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
    const bool is_there = status == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return is_there ? reinterpret_cast<Function>(found) : nullptr;
  }();
  constexpr unsigned greater_or_equal = 0;
  return function != nullptr &&
         function(stream, reinterpret_cast<std::uintptr_t>(word), 1, greater_or_equal) == 0;
}

class CudaStream final : public StreamQueue {
 public:
  explicit CudaStream(Device device)
      : device_(device),
        shared_(std::make_shared<Shared>(device)),
        stream_(std::make_unique<CudaStreamHandle>(device)),
        attention_(
            std::make_unique<cuda::AttentionChoice>(cuda::attention_wish(), cuda::open_cudnn)) {}
  ~CudaStream() override {
    // Tasks of the notifier hold events, and so `shared_` itself: none may be left.
    if (!stream_->idle_within(kLastWork) || !shared_->notifier.idle_within(kLastWork)) {
      static_cast<void>(new (std::nothrow) std::shared_ptr<Shared>(shared_));
      static_cast<void>(attention_.release());
      static_cast<void>(stream_.release());
      return;
    }
    shared_->spent.clear();
    cuda::GemmContext::forget(device_, stream_->get());
  }

  void* native() const noexcept override { return stream_->get(); }
  cuda::AttentionChoice* attention() noexcept override { return attention_.get(); }

  void enqueue(Task task) override {
    shared_->spent.clear();  // without the lock: what goes may queue
    const std::lock_guard lock(mutex_);
    launch_host(stream_->get(), std::move(task), shared_->failure, ++number_, shared_->spent);
  }

  Event record() override {
    shared_->spent.clear();
    const std::lock_guard lock(mutex_);
    const cuda::CurrentDevice current(device_, "event on " + to_string(device_));
    return event_at(std::make_shared<CudaPoint>(shared_, stream_->get(), ++number_));
  }

  void wait(const Event& event) override {
    const auto point = std::dynamic_pointer_cast<const CudaPoint>(point_of(event));
    if (point && point->is_of(shared_)) return;  // in order anyway
    if (point) {
      cuda::check(cudaStreamWaitEvent(stream_->get(), point->native(), 0), "wait for an event");
      enqueue([point] { point->check_tasks(); });
    } else if (!event.done()) {
      wait_for_host(event);
    } else {
      enqueue([event] { event.wait(); });  // throws what it has failed with
    }
  }

 private:
  void wait_for_host(const Event& event) {
    const auto word = Words::all().take(device_);
    if (!wait_for_word(stream_->get(), word.get())) return enqueue([event] { event.wait(); });
    event.on_done([word] { std::atomic_ref(*word).store(1, std::memory_order_release); });
    // Behind it, so the word is there until it has been seen, and a failure goes on from there.
    enqueue([event, word] { event.wait(); });
  }

  Device device_;
  std::shared_ptr<Shared> shared_;  // before the stream, whose tasks use it to the end
  std::unique_ptr<CudaStreamHandle> stream_;
  std::unique_ptr<cuda::AttentionChoice> attention_;  // goes before the stream it works on
  std::mutex mutex_;                                  // numbers are in the stream's order
  std::uint64_t number_ = 0;
};

}  // namespace

std::unique_ptr<StreamQueue> make_cuda_stream(Device device, const std::string& name) {
  static_cast<void>(name);  // CUDA streams have none
  return std::make_unique<CudaStream>(device);
}

}  // namespace lockstep::detail
