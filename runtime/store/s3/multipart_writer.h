// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/runtime/object_store.h"
#include "runtime/store/s3/s3_bucket.h"

namespace lockstep::s3 {

/// Of `size` bytes: one PUT where it fits into a part, else a multipart upload whose parts are sent
/// while later ones are written. What may still get bytes at offset 0 is held back.
std::unique_ptr<ObjectWriter> make_writer(Bucket& bucket, std::string key, std::uint64_t size);

}  // namespace lockstep::s3
