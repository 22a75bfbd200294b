// SPDX-License-Identifier: Apache-2.0
#include "collectives/host_identity.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace lockstep {
namespace {

std::string read_link(const char* path) {
  std::array<char, 64> target{};
  const ssize_t size = readlink(path, target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : std::string();
}

}  // namespace

HostIdentity host_identity() {
  HostIdentity host;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) host.name = name.data();
  host.process_id = getpid();
  // Names repeat: container images and cloned machines keep theirs. A boot of a kernel is one
  // machine; containers on it are hosts of their own, because they do not share loopback.
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  host.key = host.name + '/' + boot + '/' + read_link("/proc/self/ns/net") + '/' +
             read_link("/proc/self/ns/ipc");
  return host;
}

}  // namespace lockstep
