// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <ostream>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Variables = std::map<std::string, std::string>;

LaunchPlace place_in(const Variables& variables) {
  return launch_place([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

// What the refusal says, hint included; empty if there was none.
std::string refusal(const Variables& variables) {
  try {
    place_in(variables);
    return {};
  } catch (const ConfigError& error) {
    return describe(error);
  }
}

struct Launch {
  const char* name;
  Variables variables;
  const char* launcher;
  int rank;
  int size;
  int local_rank;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name that gtest looks for
void PrintTo(const Launch& launch, std::ostream* out) { *out << launch.name; }

class LaunchPlaceIs : public testing::TestWithParam<Launch> {};

TEST_P(LaunchPlaceIs, TheOneTheLauncherMeans) {
  const Launch& launch = GetParam();
  const LaunchPlace place = place_in(launch.variables);
  EXPECT_EQ(place.launcher, launch.launcher);
  EXPECT_EQ(place.rank, launch.rank);
  EXPECT_EQ(place.size, launch.size);
  EXPECT_EQ(place.local_rank, launch.local_rank);
}

const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "2"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"PMIX_RANK", "2"}};

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, LaunchPlaceIs,
    testing::Values(Launch{"NoVariables", {}, "none", 0, 1, 0},  //
                    Launch{"Mpirun", kMpirun, "mpirun", 2, 4, 1},
                    // mpirun's daemons are a step of one task a node, which their ranks inherit.
                    Launch{"MpirunInsideAnAllocation",
                           with(kMpirun, {{"SLURM_STEP_NUM_TASKS", "2"},
                                          {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                          {"SLURM_PROCID", "1"},
                                          {"SLURM_NTASKS", "4"}}),
                           "mpirun", 2, 4, 1},
                    Launch{"SrunWithPmix",
                           {{"PMIX_RANK", "5"},
                            {"SLURM_STEP_NUM_TASKS", "7"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                            {"SLURM_PROCID", "5"},
                            {"SLURM_LOCALID", "1"}},
                           "srun",
                           5,
                           7,
                           1},
                    Launch{"SrunWithPmi2",
                           {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}},
                           "srun",
                           1,
                           2,
                           0},
                    Launch{"SrunOfOneTask",
                           {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}},
                           "srun",
                           0,
                           1,
                           0},
                    Launch{"BodyOfABatchScript",
                           {{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}},
                           "none",
                           0,
                           1,
                           0},
                    Launch{"TorchrunOfOne",
                           {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "1"}},
                           "none",
                           0,
                           1,
                           0},
                    // A rank of mpirun that also sets PyTorch's variables for its own use.
                    Launch{"MpirunWithTorchVariables",
                           with(kMpirun, {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}}),
                           "mpirun", 2, 4, 1}),
    [](const auto& launch) { return launch.param.name; });

TEST(LaunchPlace, RefusesTasksOfSrunThatCannotFindEachOther) {
  const std::string text = refusal({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}});
  EXPECT_THAT(text, HasSubstr("4 tasks"));
  EXPECT_THAT(text, HasSubstr("srun --mpi=pmix"));
}

TEST(LaunchPlace, RefusesTorchrun) {
  const std::string text = refusal(
      {{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "none"}});
  EXPECT_THAT(text, HasSubstr("WORLD_SIZE=2"));
  EXPECT_THAT(text, HasSubstr("mpirun"));
}

TEST(LaunchPlace, RefusesTheMpiexecOfAnotherMpi) {
  EXPECT_THAT(refusal({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}), HasSubstr("PMI_SIZE=3"));
}

TEST(LaunchPlace, NamesBothNumbersThatContradictEachOther) {
  const std::string steps = refusal({{"PMIX_RANK", "0"},
                                     {"SLURM_STEP_NUM_TASKS", "8"},
                                     {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}});
  EXPECT_THAT(steps, HasSubstr("SLURM_STEP_NUM_TASKS=8"));
  EXPECT_THAT(steps, HasSubstr("2(x3),1 makes 7"));
  const std::string ranks = refusal({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_THAT(ranks, HasSubstr("OMPI_COMM_WORLD_RANK=4 and OMPI_COMM_WORLD_SIZE=4"));
}

TEST(LaunchPlace, NamesAVariableThatIsNoCount) {
  for (const char* value : {"", "two", "-1", "3x", "99999999999"}) {
    EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_SIZE", value}}), HasSubstr("OMPI_COMM_WORLD_SIZE"))
        << value;
  }
}

TEST(LaunchPlace, WarnsOnceOfTasksThatSlurmHoldsAndNobodyUses) {
  const Variables one_step = {{"SLURM_STEP_NUM_TASKS", "1"},
                              {"SLURM_NTASKS", "1"},
                              {"SLURM_NTASKS_PER_NODE", "2"},
                              {"SLURM_JOB_NUM_NODES", "1"}};
  EXPECT_THAT(place_in(one_step).warnings, SizeIs(1));
  EXPECT_THAT(place_in({{"SLURM_NTASKS", "2"}}).warnings,
              ElementsAre(HasSubstr("srun --mpi=pmix")));
  EXPECT_THAT(place_in(kMpirun).warnings, IsEmpty());
  EXPECT_THAT(place_in({}).warnings, IsEmpty());
}

TEST(LaunchPlace, ComparesWhatMpiFindsWithThePromise) {
  LaunchPlace place;
  place.launcher = "srun";
  place.size = 8;
  EXPECT_NO_THROW(check_mpi_size(place, 8));
  try {
    check_mpi_size(place, 4);
    FAIL() << "4 ranks of 8 were accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("promised 8 ranks, MPI came up with 4"));
    EXPECT_THAT(error.hint(), HasSubstr("--mpi=pmix"));
  }
}

TEST(TasksPerNode, ReadsSlurmsShortForm) {
  EXPECT_THAT(tasks_per_node("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(tasks_per_node("4"), ElementsAre(4));
  EXPECT_THAT(tasks_per_node("1,2,1(x2)"), ElementsAre(1, 2, 1, 1));
}

TEST(TasksPerNode, RefusesEverythingElse) {
  for (const char* text : {"", ",", "2(x)", "2(x3", "2(3)", "x", "2(x0)", "1,,2", "2(x3)4"}) {
    EXPECT_THROW(tasks_per_node(text), ConfigError) << text;
  }
}

}  // namespace
}  // namespace lockstep
