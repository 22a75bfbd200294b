// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <sstream>
#include <string>

#include "lockstep/core/error.h"

namespace lockstep::optim {

/// Throws ConfigError "optim.KEY = VALUE" unless `holds`; `range` says what is allowed.
inline void require_option(bool holds, const std::string& key, double value,
                           const std::string& range) {
  if (holds) return;
  std::ostringstream what;
  what << key << " = " << value;
  throw ConfigError(what.str(), "give " + range);
}

inline void require_fraction(const std::string& key, double value) {
  require_option(value >= 0.0 && value < 1.0, key, value, "a number from 0 to below 1");
}

inline void require_not_negative(const std::string& key, double value) {
  require_option(value >= 0.0 && std::isfinite(value), key, value, "a finite number of at least 0");
}

}  // namespace lockstep::optim
