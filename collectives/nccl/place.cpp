// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/place.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <cstdlib>

#include "collectives/control_frame.h"
#include "collectives/host_identity.h"
#include "collectives/nccl/check.h"
#include "core/cuda/check.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep::nccl {
namespace {

std::string gpu_of(Device device) {
  std::array<char, 32> id{};
  cuda::check(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), device.index),
              to_string(device));
  return id.data();
}

// NCCL's own idea of a host, where it is told one: by it two ranks can share a GPU, to try things.
std::string host_key_of(const HostIdentity& host) {
  const char* const told = std::getenv("NCCL_HOSTID");
  return host.key + (told != nullptr ? std::string("/") + told : std::string());
}

}  // namespace

Place own_place(Device device) {
  Place place;
  const HostIdentity host = host_identity();
  place.host_key = host_key_of(host);
  place.host = host.name;
  try {
    place.gpu = gpu_of(device);
    place.version = nccl_version();
  } catch (const Error& error) {
    place.failure = error.what();
    static_cast<void>(cudaGetLastError());  // or the next check of a launch would find it
  }
  return place;
}

std::string encode(const Place& place) {
  return BodyWriter()
      .text(place.host_key)
      .text(place.host)
      .text(place.gpu)
      .text(place.version)
      .text(place.failure)
      .take();
}

Place decode(const std::string& text) {
  BodyReader reader(text);
  Place place;
  place.host_key = reader.text();
  place.host = reader.text();
  place.gpu = reader.text();
  place.version = reader.text();
  place.failure = reader.text();
  return place;
}

void check_places(const std::vector<int>& job_ranks, const std::vector<Place>& places) {
  const auto name = [&](std::size_t rank) { return "rank " + std::to_string(job_ranks[rank]); };
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].failure.empty()) continue;
    throw DeviceError(
        name(rank) + ": " + places[rank].failure,
        "see `nvidia-smi` on host " + places[rank].host + " and CUDA_VISIBLE_DEVICES of its ranks");
  }
  for (std::size_t rank = 1; rank < places.size(); ++rank) {
    if (places[rank].version == places[0].version) continue;
    throw ConfigError("NCCL differs: " + name(0) + " has " + places[0].version + ", " + name(rank) +
                          " has " + places[rank].version,
                      "install one version of NCCL on all hosts, and look at LD_LIBRARY_PATH on "
                      "host " +
                          places[rank].host);
  }
  for (std::size_t rank = 1; rank < places.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      if (places[rank].host_key != places[other].host_key) continue;
      if (places[rank].gpu != places[other].gpu) continue;
      throw ConfigError(name(other) + " and " + name(rank) + " are on one GPU, " +
                            places[rank].gpu + " of host " + places[rank].host,
                        "start as many ranks on a host as it has GPUs, and give each the device "
                        "of its local rank");
    }
  }
}

}  // namespace lockstep::nccl

std::string lockstep::nccl_version() {
  int version = 0;
  nccl::check(ncclGetVersion(&version), "ncclGetVersion");
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}
