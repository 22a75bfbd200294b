// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "lockstep/runtime/object_store.h"

namespace lockstep {

/// The store `mem:name` of this process.
std::unique_ptr<ObjectStore> open_memory_store(const std::string& name);

}  // namespace lockstep
