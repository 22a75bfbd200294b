// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/core/device.h"

namespace lockstep::nccl {

/// What the ranks of a group tell each other before NCCL is asked for anything: it would hang or
/// fail without a name where they do not fit together.
struct Place {
  std::string host_key;  // HostIdentity::key
  std::string host;      // its name, for people
  std::string gpu;       // PCI bus id, which unlike an index is the same in every process
  std::string version;   // of NCCL, e.g. "2.28.9"
  std::string failure;   // why the rank cannot use its device; empty if it can
};

/// Of this process. What fails is in `failure`.
Place own_place(Device device);

std::string encode(const Place& place);
Place decode(const std::string& text);

/// Throws unless these ranks can form a group: DeviceError for the first rank that cannot use its
/// device, ConfigError for versions that differ and for two ranks on one GPU. Every rank knows the
/// same and throws the same; `job_ranks` are the ranks' names in it.
void check_places(const std::vector<int>& job_ranks, const std::vector<Place>& places);

}  // namespace lockstep::nccl
