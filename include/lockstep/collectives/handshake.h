// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "lockstep/collectives/communicator.h"

namespace lockstep {

/// One thing that must be the same on every rank.
struct HandshakeField {
  std::string name;   // "seed"
  std::string value;  // any text; long ones are compared whole and shortened in the message
};

/// Compares the fields of all ranks before any data moves. Returns on every rank, or throws on
/// every rank the same ConfigError, which names the first field that differs, two ranks and what
/// each has. Collective.
void handshake(Communicator& group, std::span<const HandshakeField> fields);

}  // namespace lockstep
