// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::nccl {

/// Memory that a communicator knows beforehand (ncclCommRegister), so that NCCL need not copy it
/// through buffers of its own where the hardware can do without: gradient arenas live as long as a
/// run.
///
/// Only the thread of the communicator may call NCCL, while the last user of a memory may be on any
/// thread: the memory lives until that thread has taken the registration back.
class Registrations {
 public:
  /// One registration with what it needs until it is taken back.
  struct Registration {
    void* handle = nullptr;  // of NCCL
    std::shared_ptr<void> memory;
  };

  Registrations();

  /// `memory`, registered, for its users; or as it is, with the reason in notes, where NCCL does
  /// not register it. Thread of the communicator, which must not be in progress.
  std::shared_ptr<void> add(ncclComm_t communicator, std::shared_ptr<void> memory,
                            std::size_t bytes);
  /// Takes back what has no user any more. Thread of the communicator.
  void take_back_unused(ncclComm_t communicator);
  /// All that are left: for whoever ends the communicator, to take back before it is destroyed, or
  /// to keep until it is aborted, which takes them back by itself.
  std::vector<Registration> take_all();

  /// Why memory is not registered: a line, once. Any thread.
  std::vector<std::string> take_notes();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the memory's users
};

}  // namespace lockstep::nccl
