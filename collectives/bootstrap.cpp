// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap.h"

#include <charconv>
#include <cstdlib>
#include <numeric>

namespace lockstep {
namespace {

constexpr const char* kUseMpirun = "start it with `mpirun -n N lockstep …` (Open MPI)";
constexpr const char* kUsePmix =
    "start it with `srun --mpi=pmix …`, or with mpirun inside the allocation";

constexpr int kMostNodes = 1 << 20;

std::optional<int> parse_count(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<int> number(const Environment& environment, const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  const auto value = parse_count(*text);
  if (!value) {
    throw ConfigError(std::string(name) + "=\"" + *text + "\" is not a count",
                      "the launcher sets this variable; unset it if your shell does");
  }
  return value;
}

LaunchPlace checked(LaunchPlace place, const char* rank_name, const char* size_name) {
  if (place.size < 1 || place.rank >= place.size) {
    throw ConfigError(std::string(rank_name) + "=" + std::to_string(place.rank) + " and " +
                          size_name + "=" + std::to_string(place.size) + " contradict each other",
                      "the launcher sets these variables; unset them if your shell does");
  }
  return place;
}

// What Slurm would allow and this job does not use: legal, and often a mistake.
void warn_of_unused_tasks(const Environment& environment, int tasks, LaunchPlace& place) {
  const auto per_node = number(environment, "SLURM_NTASKS_PER_NODE");
  auto nodes = number(environment, "SLURM_JOB_NUM_NODES");
  if (!nodes) nodes = number(environment, "SLURM_NNODES");
  if (!per_node || *per_node * nodes.value_or(1) <= tasks) return;
  place.warnings.push_back("Slurm allows " + std::to_string(*per_node) + " tasks a node on " +
                           std::to_string(nodes.value_or(1)) + " nodes, this job has " +
                           std::to_string(tasks) + " ranks: use srun -n to change that");
}

// In a batch script that runs the program itself, Slurm's variables speak of the allocation and not
// of this process: only those of a step count, and the step's own numbers must agree.
LaunchPlace place_in_step(const Environment& environment, int tasks) {
  if (const auto text = environment("SLURM_STEP_TASKS_PER_NODE")) {
    const auto nodes = tasks_per_node(*text);
    const int sum = std::accumulate(nodes.begin(), nodes.end(), 0);
    if (sum != tasks) {
      throw ConfigError("SLURM_STEP_NUM_TASKS=" + std::to_string(tasks) +
                            " but SLURM_STEP_TASKS_PER_NODE=" + *text + " makes " +
                            std::to_string(sum),
                        "unset the SLURM_* variables that your script sets itself");
    }
  }
  const auto pmix = number(environment, "PMIX_RANK");
  const auto pmi = pmix ? pmix : number(environment, "PMI_RANK");
  if (!pmi && tasks > 1) {
    throw ConfigError("srun started " + std::to_string(tasks) +
                          " tasks without PMIx, so that each would train alone as rank 0 of 1",
                      kUsePmix);
  }
  LaunchPlace place;
  place.launcher = "srun";
  place.rank = pmi.value_or(0);
  place.size = tasks;
  place.local_rank = number(environment, "SLURM_LOCALID").value_or(0);
  warn_of_unused_tasks(environment, tasks, place);
  return checked(place, pmix ? "PMIX_RANK" : "PMI_RANK", "SLURM_STEP_NUM_TASKS");
}

void refuse_other_launchers(const Environment& environment) {
  const bool elastic = environment("RANK") && (environment("LOCAL_RANK").has_value() ||
                                               environment("TORCHELASTIC_RUN_ID").has_value());
  const int world = elastic ? number(environment, "WORLD_SIZE").value_or(1) : 1;
  if (world > 1) {
    throw ConfigError("started by torchrun or alike with WORLD_SIZE=" + std::to_string(world) +
                          ", but Lockstep's ranks find each other through MPI",
                      kUseMpirun);
  }
  if (const int size = number(environment, "PMI_SIZE").value_or(1); size > 1) {
    throw ConfigError("PMI_SIZE=" + std::to_string(size) +
                          " comes from the mpiexec of another MPI than the one Lockstep is built "
                          "with, so that each process would train alone",
                      kUseMpirun);
  }
}

}  // namespace

std::vector<int> tasks_per_node(std::string_view text) {
  const auto refuse = [&] {
    return ConfigError("\"" + std::string(text) + "\" is not a list of tasks a node",
                       "Slurm writes it like 2(x3),1");
  };
  std::vector<int> nodes;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    std::optional<int> repeat = 1;
    if (const std::size_t open = item.find("(x"); open != std::string_view::npos) {
      if (item.back() != ')') throw refuse();
      repeat = parse_count(item.substr(open + 2, item.size() - open - 3));
      item = item.substr(0, open);
    }
    const auto tasks = parse_count(item);
    if (!tasks || !repeat || *repeat < 1 || *repeat > kMostNodes) throw refuse();
    nodes.insert(nodes.end(), static_cast<std::size_t>(*repeat), *tasks);
    if (comma == std::string_view::npos) return nodes;
    rest.remove_prefix(comma + 1);
  }
}

LaunchPlace launch_place(const Environment& environment) {
  // mpirun first: inside a Slurm allocation its ranks see both sets of variables.
  if (const auto size = number(environment, "OMPI_COMM_WORLD_SIZE")) {
    LaunchPlace place;
    place.launcher = "mpirun";
    place.size = *size;
    place.rank = number(environment, "OMPI_COMM_WORLD_RANK").value_or(0);
    place.local_rank = number(environment, "OMPI_COMM_WORLD_LOCAL_RANK").value_or(0);
    return checked(place, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  }
  if (const auto tasks = number(environment, "SLURM_STEP_NUM_TASKS")) {
    return place_in_step(environment, *tasks);
  }
  refuse_other_launchers(environment);
  LaunchPlace place;
  place.launcher = "none";
  const int tasks = number(environment, "SLURM_NTASKS").value_or(1);
  if (tasks > 1) {
    place.warnings.push_back("Slurm holds " + std::to_string(tasks) +
                             " tasks for this job, which runs as one process: " + kUsePmix);
  } else {
    warn_of_unused_tasks(environment, tasks, place);
  }
  return place;
}

LaunchPlace launch_place() {
  return launch_place([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  });
}

void check_mpi_size(const LaunchPlace& place, int mpi_size) {
  if (mpi_size == place.size) return;
  throw ConfigError("rank " + std::to_string(place.rank) + ": " + place.launcher + " promised " +
                        std::to_string(place.size) + " ranks, MPI came up with " +
                        std::to_string(mpi_size),
                    place.launcher == "srun"
                        ? kUsePmix
                        : "check that mpirun and the MPI library belong to one installation");
}

}  // namespace lockstep
