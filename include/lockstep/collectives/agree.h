// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/communicator.h"

namespace lockstep {

/// Every rank's text, by rank. Collective; texts may differ in length.
std::vector<std::string> gather_text(Communicator& group, std::string_view text);

/// The text of `root` on every rank. Collective.
std::string broadcast_text(Communicator& group, std::string_view text, int root);

/// Whether any rank says yes; the same answer everywhere. Collective.
bool any(Communicator& group, bool mine);

/// Runs `body` here, then compares: returns on every rank, or throws on every rank. The rank on
/// which `body` threw rethrows its own exception if it is the lowest such rank; all others throw
/// CommError with that rank's text, hint, outcome and number. `body` must not communicate.
/// Collective.
void agree(Communicator& group, std::string_view what, const std::function<void()>& body);

}  // namespace lockstep
