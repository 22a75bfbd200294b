// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "runtime/store/s3/credentials.h"
#include "runtime/store/s3/variables.h"

namespace lockstep::s3 {

/// The endpoint that a container service names in AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or
/// AWS_CONTAINER_CREDENTIALS_FULL_URI; null without either. Throws ConfigError for a full URI that
/// would send the token in the clear to another host.
std::unique_ptr<CredentialSource> container_credentials(const Variables& variables);

/// IMDSv2 at AWS_EC2_METADATA_SERVICE_ENDPOINT or its usual address.
std::unique_ptr<CredentialSource> machine_credentials(const Variables& variables);

/// The RAM role of an Alibaba Cloud machine.
std::unique_ptr<CredentialSource> alibaba_machine_credentials(const Variables& variables);

struct WebIdentity {
  std::string endpoint;    // of the token service: https://sts.eu-west-1.amazonaws.com
  std::string role;        // ARN
  std::string token_file;  // read at each fetch: it is replaced while the process runs
  std::string session;
  std::string ca_bundle;
};
std::unique_ptr<CredentialSource> web_identity_credentials(WebIdentity identity);

}  // namespace lockstep::s3
