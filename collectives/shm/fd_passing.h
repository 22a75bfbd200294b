// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "collectives/wait.h"
#include "core/file_handle.h"

namespace lockstep {

/// A listening Unix socket with a name of its own in the abstract namespace: no file, gone with the
/// socket, seen in this network namespace alone. Throws CommError.
struct Listener {
  FileHandle socket;
  std::string name;
};
Listener listen_for_peers(int peers);

/// Hands `file` to `peers` processes of this user that connect. Throws CommError.
void hand_out(const Listener& listener, const FileHandle& file, int peers, Wait& wait);

/// Receives a file descriptor from the listener of that name. Throws CommError.
FileHandle receive_file(const std::string& name, Wait& wait);

}  // namespace lockstep
