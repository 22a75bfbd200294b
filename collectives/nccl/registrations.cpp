// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/registrations.h"

#include <map>
#include <mutex>
#include <utility>

// Null where the library is older than 2.19.
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister

namespace lockstep::nccl {

namespace {

constexpr const char* kCopies =
    "NCCL copies gradients through buffers of its own, as it does not register their memory: ";

}  // namespace

struct Registrations::State {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<void>> used;  // memory by NCCL's handle
  std::vector<Registration> unused;
  std::vector<std::string> notes;
  bool is_noted = false;

  // Its last user is gone.
  void release(void* handle) {
    const std::lock_guard lock(mutex);
    const auto found = used.find(handle);
    if (found == used.end()) return;  // whoever ends the communicator has it
    unused.push_back({.handle = handle, .memory = std::move(found->second)});
    used.erase(found);
  }

  void note(const std::string& text) {
    const std::lock_guard lock(mutex);
    if (!std::exchange(is_noted, true)) notes.push_back(text);
  }
};

Registrations::Registrations() : state_(std::make_shared<State>()) {}

std::shared_ptr<void> Registrations::add(ncclComm_t communicator, std::shared_ptr<void> memory,
                                         std::size_t bytes) {
  if (bytes == 0) return memory;
  if (ncclCommRegister == nullptr || ncclCommDeregister == nullptr) {
    state_->note(kCopies + std::string("the library is older than 2.19"));
    return memory;
  }
  void* handle = nullptr;
  const ncclResult_t result = ncclCommRegister(communicator, memory.get(), bytes, &handle);
  if (result != ncclSuccess) {
    state_->note(kCopies + std::string(ncclGetErrorString(result)));
    return memory;
  }
  if (handle == nullptr) return memory;  // registration is off: NCCL_LOCAL_REGISTER=0
  const std::lock_guard lock(state_->mutex);
  state_->used.emplace(handle, memory);
  void* const data = memory.get();
  return {data, [state = state_, handle, kept = std::move(memory)](void*) mutable {
            kept.reset();  // `used` has it still, or the end of the communicator
            state->release(handle);
          }};
}

void Registrations::take_back_unused(ncclComm_t communicator) {
  std::vector<Registration> gone;
  {
    const std::lock_guard lock(state_->mutex);
    gone.swap(state_->unused);
  }
  for (const Registration& registration : gone) {
    static_cast<void>(ncclCommDeregister(communicator, registration.handle));
  }
}

std::vector<Registrations::Registration> Registrations::take_all() {
  const std::lock_guard lock(state_->mutex);
  std::vector<Registration> all = std::exchange(state_->unused, {});
  for (auto& [handle, memory] : std::exchange(state_->used, {})) {
    all.push_back({.handle = handle, .memory = std::move(memory)});
  }
  return all;
}

std::vector<std::string> Registrations::take_notes() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->notes, {});
}

}  // namespace lockstep::nccl
