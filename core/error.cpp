// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.h"

namespace lockstep {

std::string describe(const std::exception& error) {
  std::string text = error.what();
  if (const auto* ours = dynamic_cast<const Error*>(&error); ours && !ours->hint().empty()) {
    text += "\n  hint: " + ours->hint();
  }
  return text;
}

Outcome outcome_of(const std::exception& error) noexcept {
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours ? ours->outcome() : Outcome::internal;
}

}  // namespace lockstep
