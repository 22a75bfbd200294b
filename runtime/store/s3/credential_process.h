// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "runtime/store/s3/credentials.h"

namespace lockstep::s3 {

/// What the command of a profile's `credential_process` prints; it runs at each fetch, in sh.
std::unique_ptr<CredentialSource> process_credentials(std::string command);

}  // namespace lockstep::s3
