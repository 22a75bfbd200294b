// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Now, as `YYYY-MM-DDThh:mm:ss.mmmZ`.
std::string utc_now();

}  // namespace lockstep
