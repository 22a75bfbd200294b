// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/runtime/checkpoint_tools.h"

namespace lockstep {

/// Thrown where a reader meets damage; says which byte range of which object.
class DamageError : public DataError {
 public:
  explicit DamageError(Damage damage)
      : DataError(to_string(damage), "take another checkpoint; `lockstep ckpt verify` lists all"),
        damage_(std::move(damage)) {}
  const Damage& damage() const noexcept { return damage_; }

 private:
  Damage damage_;
};

}  // namespace lockstep
