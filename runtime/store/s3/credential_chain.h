// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "runtime/store/s3/credentials.h"
#include "runtime/store/s3/http.h"
#include "runtime/store/s3/settings.h"

namespace lockstep::s3 {

/// The first that is configured: variables, web identity, profile (keys, credential_process), the
/// container's endpoint, the machine's own (IMDSv2). For oss: its variables and the RAM role of the
/// machine around them. Reads the variables now, asks nobody yet. Throws ConfigError for half a
/// configuration.
std::unique_ptr<CredentialSource> find_credentials(std::string_view scheme,
                                                   const Settings& settings,
                                                   const Variables& variables,
                                                   const Profile& profile);

}  // namespace lockstep::s3
