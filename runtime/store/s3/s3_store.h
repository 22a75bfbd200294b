// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "lockstep/runtime/object_store.h"
#include "runtime/store/s3/variables.h"

namespace lockstep::s3 {

/// The store at `scheme`:`rest` (s3 or oss), configured by `variables` and the profiles. Asks
/// nobody yet. Throws ConfigError.
std::unique_ptr<ObjectStore> open_s3_store(std::string_view scheme, std::string_view rest,
                                           const Variables& variables);

}  // namespace lockstep::s3
