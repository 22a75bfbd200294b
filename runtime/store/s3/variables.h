// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace lockstep::s3 {

/// The value of an environment variable; empty where it is not set, which counts as the same.
using Variables = std::function<std::string(const char* name)>;

/// Those of this process.
Variables process_variables();

}  // namespace lockstep::s3
