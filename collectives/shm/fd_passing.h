// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "collectives/wait.h"

namespace lockstep {

/// An open file descriptor that is closed with its owner; -1 is none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor();
  int get() const noexcept { return number_; }

 private:
  int number_ = -1;
};

/// A listening Unix socket with a name of its own in the abstract namespace: no file, gone with the
/// socket, seen in this network namespace alone. Throws CommError.
struct Listener {
  FileDescriptor socket;
  std::string name;
};
Listener listen_for_peers(int peers);

/// Hands `file` to `peers` processes of this user that connect. Throws CommError.
void hand_out(const Listener& listener, const FileDescriptor& file, int peers, Wait& wait);

/// Receives a file descriptor from the listener of that name. Throws CommError.
FileDescriptor receive_file(const std::string& name, Wait& wait);

}  // namespace lockstep
