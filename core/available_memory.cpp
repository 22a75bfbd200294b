// SPDX-License-Identifier: Apache-2.0
#include "core/available_memory.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The files in which one version of control groups tells limit, use and what may be taken back.
struct Names {
  const char* limit;
  const char* used;
  std::vector<std::string> reclaimable;  // in memory.stat
};
const Names& version_1() {
  static const Names names{"memory.limit_in_bytes",
                           "memory.usage_in_bytes",
                           {"total_inactive_file", "total_active_file"}};
  return names;
}
const Names& version_2() {
  static const Names names{"memory.max", "memory.current", {"inactive_file", "active_file"}};
  return names;
}

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::uint64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;  // not there, or "max"
}

/// "Name: 12 kB" or "name 12", by name without the colon.
std::map<std::string, std::uint64_t> table_in(const fs::path& file) {
  std::map<std::string, std::uint64_t> table;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t number = 0;
    if (!(words >> name >> number)) continue;
    if (name.back() == ':') name.pop_back();
    table[name] = number;
  }
  return table;
}

void lower(std::optional<std::uint64_t>& least, std::uint64_t bytes) {
  least = std::min(least.value_or(bytes), bytes);
}

/// A group may use what every group above it leaves. Inside a container the path that the process
/// is told may lie above what it sees; the folder that it does see is then its own.
void look_at_groups(const fs::path& mount, const std::string& path, const Names& names,
                    std::optional<std::uint64_t>& least) {
  for (fs::path group = fs::path(path).relative_path();; group = group.parent_path()) {
    const fs::path folder = mount / group;
    const auto limit = number_in(folder / names.limit);
    const auto used = number_in(folder / names.used);
    if (limit && used) {
      std::uint64_t kept = *used;
      const auto stat = table_in(folder / "memory.stat");
      for (const std::string& name : names.reclaimable) {
        const auto found = stat.find(name);
        if (found != stat.end()) kept -= std::min(kept, found->second);
      }
      lower(least, *limit - std::min(*limit, kept));
    }
    if (group.empty()) return;
  }
}

}  // namespace

std::optional<std::uint64_t> available_memory(const fs::path& root) {
  std::optional<std::uint64_t> least;
  const auto machine = table_in(root / "proc/meminfo");
  if (const auto found = machine.find("MemAvailable"); found != machine.end()) {
    const auto swap = machine.find("SwapFree");
    lower(least, (found->second + (swap == machine.end() ? 0 : swap->second)) * 1024);
  }
  const fs::path groups = root / "sys/fs/cgroup";
  std::ifstream own(root / "proc/self/cgroup");
  // "4:memory:/path" of version 1, "0::/path" of version 2.
  for (std::string line; std::getline(own, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      look_at_groups(groups, path, version_2(), least);
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      look_at_groups(groups / "memory", path, version_1(), least);
    }
  }
  return least;
}

}  // namespace lockstep
