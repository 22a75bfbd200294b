// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/part.h"

namespace lockstep::s3 {

Body Part::body() const {
  Body body;
  for (const auto& [offset, bytes] : pieces_) {
    body.add_zeros(offset - body.size());
    body.add(bytes);
  }
  body.add_zeros(size_ - body.size());
  return body;
}

}  // namespace lockstep::s3
