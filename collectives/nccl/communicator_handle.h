// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/nccl/registrations.h"
#include "collectives/wait.h"
#include "lockstep/core/device.h"
#include "lockstep/core/stream.h"

namespace lockstep::nccl {

/// This rank's communicator of a group, of the kind whose calls do not block. One thread at a time.
///
/// What takes a communicator down may wait for other ranks, or for ever: it runs on a thread of its
/// own, and whoever asks for it waits as long as he likes.
class CommunicatorHandle {
 public:
  explicit CommunicatorHandle(Device device) : device_(device) {}
  /// Begins to take the communicator down, if nobody has; does not wait.
  ~CommunicatorHandle();
  CommunicatorHandle(const CommunicatorHandle&) = delete;
  CommunicatorHandle& operator=(const CommunicatorHandle&) = delete;

  /// Until all `size` ranks that know `id` have come. After a failure the end has begun.
  void join(const ncclUniqueId& id, int size, int rank, Wait& wait);

  ncclComm_t get() const noexcept { return handle_; }
  /// Whether what NCCL was given last is in its stream; nothing else may be queued before. Throws
  /// what went wrong, here or on another rank; `call` is what the operation of `wait` is doing.
  bool ready(const Wait& wait, const char* call) const;

  /// Memory that NCCL is to know as long as it is used, for its users.
  std::shared_ptr<void> registered(std::shared_ptr<void> memory, std::size_t bytes) {
    return registrations_.add(handle_, std::move(memory), bytes);
  }
  /// Takes back what nobody uses any more; between operations.
  void take_back_unused() { registrations_.take_back_unused(handle_); }
  /// Any thread.
  std::vector<std::string> take_notes() { return registrations_.take_notes(); }

  /// abort: ends what is under way. destroy: after all work is done, and lets go what is still on
  /// its way to others.
  enum class Ending : std::uint8_t { destroy, abort };
  /// From here on the handle is not to be used. A second call does nothing.
  void end(Ending how) noexcept;
  bool ended() const noexcept { return ended_; }
  /// Whether the communicator is gone, after `limit` at most.
  bool gone_within(std::chrono::milliseconds limit) const;

 private:
  Device device_;
  ncclComm_t handle_ = nullptr;
  Registrations registrations_;
  bool ended_ = false;
  Event over_ = Event::make();          // reached when the communicator is gone
  std::unique_ptr<std::thread> ender_;  // that takes it down
};

}  // namespace lockstep::nccl
