// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/s3/base64.h"

#include <openssl/evp.h>

#include <vector>

namespace lockstep::s3 {

std::string base64(std::span<const std::byte> bytes) {
  std::vector<unsigned char> text(4 * ((bytes.size() + 2) / 3) + 1);
  const int length =
      EVP_EncodeBlock(text.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  return {text.begin(), text.begin() + length};
}

}  // namespace lockstep::s3
