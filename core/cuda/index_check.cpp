// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/index_check.h"

#include <map>
#include <mutex>
#include <vector>

#include "core/cuda/kernel_support.h"
#include "core/host_memory.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::size_t kPage = 64;  // slots

// Pinned slots for answers, kept for the life of the process: pinning memory takes longer than a
// step has time for, and the task that returns a slot may not call CUDA.
class Slots {
 public:
  std::shared_ptr<gpu::BadIndex> take(Device device) {
    const std::lock_guard lock(mutex_);
    std::vector<gpu::BadIndex*>& free = free_[device];
    if (free.empty()) {
      pages_.push_back(host_memory(device, kPage * sizeof(gpu::BadIndex)));
      auto* slots = static_cast<gpu::BadIndex*>(pages_.back().get());
      for (std::size_t i = 0; i < kPage; ++i) free.push_back(slots + i);
    }
    gpu::BadIndex* slot = free.back();
    free.pop_back();
    *slot = {};
    return {slot, [this, device](gpu::BadIndex* used) { give_back(device, used); }};
  }

 private:
  void give_back(Device device, gpu::BadIndex* slot) {
    const std::lock_guard lock(mutex_);
    free_[device].push_back(slot);
  }

  std::mutex mutex_;
  std::map<Device, std::vector<gpu::BadIndex*>> free_;
  std::vector<std::shared_ptr<void>> pages_;
};

// Never destroyed: streams may return slots while the process ends.
Slots& slots() {
  static Slots& instance = *new Slots;
  return instance;
}

}  // namespace

IndexCheck check_indices(Stream& stream, const Tensor& values, std::int64_t limit,
                         std::optional<std::int32_t> ignored) {
  const std::shared_ptr<gpu::BadIndex> bad = slots().take(stream.device());
  if (values.size() == 0) return {.bad = bad, .skip = nullptr, .memory = {}};
  const Tensor memory(stream.device(), {1}, DType::i32);
  std::int32_t* skip = memory.as<std::int32_t>();
  launch(gpu::kCheckIndices, grid_of(1, 1, gpu::kCheckIndicesThreads),
         gpu::CheckIndicesArgs{.values = values.as<std::int32_t>(),
                               .n = values.size(),
                               .limit = limit,
                               .may_ignore = ignored.has_value(),
                               .ignored = ignored.value_or(0),
                               .bad = bad.get(),
                               .skip = skip},
         stream);
  return {.bad = bad, .skip = skip, .memory = memory};
}

}  // namespace lockstep::kernels::cuda
