// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/store/s3/variables.h"

namespace lockstep::s3 {

/// A profile of Amazon's files: names in lower case; what is indented below `s3 =` is `s3.name`.
using Profile = std::map<std::string, std::string>;

/// Profiles by name of a file's text. `[profile x]` (of the file of options) and `[x]` (of the file
/// of credentials) are both x. Throws ConfigError, without the line's text, for a line that is
/// none.
std::map<std::string, Profile> parse_profiles(std::string_view text, const std::string& file);

/// The profile that AWS_PROFILE names, or "default", of ~/.aws/config and ~/.aws/credentials, or of
/// AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE; the latter wins. Empty where there is none;
/// throws ConfigError where AWS_PROFILE names one that is in neither.
Profile read_profile(const Variables& variables);

}  // namespace lockstep::s3
