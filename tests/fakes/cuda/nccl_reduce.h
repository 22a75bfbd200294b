// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::fake {

/// Bytes of an element; 0: a type that the fake does not know.
std::size_t size_of(ncclDataType_t type);
std::string name_of(ncclDataType_t type);
bool is_known(ncclRedOp_t reduction);

/// out [count] = the reduction of all inputs [count] in their order: bf16 and f16 in f32, rounded
/// once at the end. `out` must not overlap an input.
void reduce(ncclDataType_t type, ncclRedOp_t reduction, const std::vector<const void*>& inputs,
            std::size_t count, void* out);

}  // namespace lockstep::fake
