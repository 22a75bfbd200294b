// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// The value of an environment variable, if it is set: injected so that tests need no launcher.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// launch_place() over any environment.
LaunchPlace launch_place(const Environment& environment);

/// Slurm's short form of tasks on each node: "2(x3),1" is 2, 2, 2, 1. Throws ConfigError with the
/// text if it is anything else.
std::vector<int> tasks_per_node(std::string_view text);

/// Throws ConfigError that names both numbers unless MPI came up with the promised size.
void check_mpi_size(const LaunchPlace& place, int mpi_size);

}  // namespace lockstep
