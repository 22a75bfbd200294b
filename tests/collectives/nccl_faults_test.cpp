// SPDX-License-Identifier: Apache-2.0
// Groups between GPUs where something goes wrong: they end in time, and say what it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "collectives/nccl/place.h"
#include "lockstep/core/copy.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stream.h"
#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/nccl_faults.h"
#include "tests/support/nccl_ranks.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing_support::make_nccl_ranks;
using testing_support::NcclRank;

class NcclFaults : public ::testing::Test {
 protected:
  void SetUp() override { began_ = Clock::now(); }
  void TearDown() override {
    fake::set_nccl_faults("");
    fake::set_cuda_faults("");
    // What hangs would take as long as the destructors wait for it, or for ever.
    EXPECT_LT(Clock::now() - began_, seconds(4));
  }

  // What `body` ends with on each rank of a group whose operations have a second.
  static std::vector<std::exception_ptr> failures(int ranks,
                                                  const std::function<void(Communicator&)>& body) {
    const auto abort = std::make_shared<AbortSignal>();
    const CommunicatorOptions options{.name = "gpus", .timeout = seconds(1)};
    std::vector<std::exception_ptr> ends(static_cast<std::size_t>(ranks));
    try {
      testing_support::run_group(
          testing_support::make_nccl_group(ranks, options, abort), abort, [&](Communicator& group) {
            try {
              body(group);
            } catch (...) {
              ends[static_cast<std::size_t>(group.rank())] = std::current_exception();
              throw;
            }
          });
    } catch (const std::exception&) {
      // It is one of `ends`.
    }
    return ends;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point began_;
};

template <typename Expected>
std::string text_of(const std::exception_ptr& failure) {
  if (!failure) return "no failure";
  try {
    std::rethrow_exception(failure);
  } catch (const Expected& error) {
    const std::string what = error.what();
    const bool is_handed_on = what.find("exception: ") != std::string::npos;
    EXPECT_TRUE(is_handed_on || !error.hint().empty());
    return std::to_string(static_cast<int>(error.outcome())) + ": " + error.what();
  } catch (const std::exception& error) {
    return std::string("of another type: ") + error.what();
  }
}

void add_up(Communicator& group, int times) {
  const Tensor data = Tensor::zeros(group.device(), {1000}, DType::f32);
  for (int i = 0; i < times; ++i) group.all_reduce(data, ReduceOp::sum).wait();
}

TEST_F(NcclFaults, ALostPeerIsSeenAndEndsAllRanks) {
  fake::set_nccl_faults("remote_error@2:rank1");
  const auto ends = failures(2, [](Communicator& group) { add_up(group, 3); });
  EXPECT_THAT(text_of<CommError>(ends[1]),
              HasSubstr("79: rank 1: all_reduce #2 of group gpus (1000 x f32): run: remote process "
                        "exited or there was a network error"));
  EXPECT_THAT(text_of<CommError>(ends[0]), HasSubstr("79: rank 1: "));
}

TEST_F(NcclFaults, AStuckCollectiveEndsAtItsDeadline) {
  fake::set_nccl_faults("stuck@2:rank1");
  const auto ends = failures(3, [](Communicator& group) { add_up(group, 3); });
  int late = 0;
  for (const auto& end : ends) {
    const std::string text = text_of<CommError>(end);
    EXPECT_THAT(text, HasSubstr("79: "));
    if (text.find("all_reduce #2 of group gpus (1000 x f32): gave up after 1") != text.npos) ++late;
  }
  EXPECT_GE(late, 1);
}

TEST_F(NcclFaults, AStuckExchangeOfSlicesEndsAtItsDeadline) {
  fake::set_nccl_faults("stuck@1:rank0");
  const auto ends = failures(2, [](Communicator& group) {
    const Tensor data = group.allocate(5000, DType::f32);
    const auto plan = std::make_shared<const SumPlan>(ordered_plan(group.size()));
    group.reduce_parts({data}, data, plan).wait();
  });
  for (const auto& end : ends) EXPECT_THAT(text_of<CommError>(end), HasSubstr("reduce_parts #2"));
}

TEST_F(NcclFaults, AFaultOfTheGpuIsADeviceError) {
  fake::set_cuda_faults("launch:1");
  const auto ends = failures(2, [](Communicator& group) {
    const Tensor data = group.allocate(5000, DType::f32);
    const auto plan = std::make_shared<const SumPlan>(ordered_plan(group.size()));
    group.reduce_parts({data}, data, plan).wait();
  });
  const auto is_device_error = [](const std::exception_ptr& end) {
    return text_of<DeviceError>(end).substr(0, 4) == "79: ";
  };
  EXPECT_TRUE(std::any_of(ends.begin(), ends.end(), is_device_error))
      << text_of<DeviceError>(ends[0]) << "\n"
      << text_of<DeviceError>(ends[1]);
}

TEST_F(NcclFaults, AStartThatIsNeverCompleteEndsAtItsDeadline) {
  fake::set_nccl_faults("init_never:rank1");
  const AbortSignal abort;
  for (const NcclRank& rank : make_nccl_ranks({0, 1, 2}, abort, milliseconds(500))) {
    EXPECT_THAT(text_of<TimeoutError>(rank.failure),
                HasSubstr("not all ranks have connected over NCCL"));
  }
}

TEST_F(NcclFaults, AStartEndsWhenAnotherRankFails) {
  fake::set_nccl_faults("init_never:rank1");
  AbortSignal abort;
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(100));
    abort.raise({.outcome = Outcome::failed_elsewhere,
                 .kind = "exception",
                 .origin_rank = 7,
                 .what = "it broke",
                 .hint = "mend it"});
  });
  for (const NcclRank& rank : make_nccl_ranks({0, 1}, abort, seconds(30))) {
    EXPECT_THAT(text_of<CommError>(rank.failure), HasSubstr("rank 7: exception: it broke"));
  }
  other.join();
}

TEST_F(NcclFaults, TwoRanksOnOneGpuAreToldSoOnAllRanks) {
  const AbortSignal abort;
  for (const NcclRank& rank : make_nccl_ranks({0, 2, 1, 2}, abort, seconds(10))) {
    EXPECT_THAT(text_of<ConfigError>(rank.failure),
                HasSubstr("78: rank 1 and rank 3 are on one GPU, 0000:03:00.0 of host "));
  }
}

TEST_F(NcclFaults, ADeviceThatIsNotThereIsNamedOnAllRanks) {
  const AbortSignal abort;
  for (const NcclRank& rank : make_nccl_ranks({0, 9}, abort, seconds(10))) {
    EXPECT_THAT(text_of<DeviceError>(rank.failure),
                HasSubstr("79: rank 1: cuda:9: cudaErrorInvalidDevice"));
  }
}

TEST_F(NcclFaults, OtherVersionsOfNcclAreNamed) {
  std::vector<nccl::Place> places(3);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    places[rank] = {.host_key = "key " + std::to_string(rank),
                    .host = "host " + std::to_string(rank),
                    .gpu = "0000:01:00.0",
                    .version = rank == 2 ? "2.19.3" : "2.28.9",
                    .failure = {}};
  }
  try {
    nccl::check_places({4, 5, 6}, places);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "NCCL differs: rank 4 has 2.28.9, rank 6 has 2.19.3");
    EXPECT_THAT(error.hint(), HasSubstr("host 2"));
  }
}

// As where another group of the process has failed.
TEST_F(NcclFaults, AnOperationThatIsDroppedHoldsNobodyUp) {
  const AbortSignal abort;
  auto ranks = make_nccl_ranks({0, 1}, abort, seconds(10));
  Wait wait(abort, std::chrono::steady_clock::now() + seconds(10), "dropped");
  {
    const Task task = ranks[0].backend->barrier(wait);
    task.start();
    for (int i = 0; i < 20; ++i) {
      wait.resume();
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_FALSE(task.done());
  }
  EXPECT_THROW(run_to_end(ranks[0].backend->barrier(wait), wait), CommError);
}

// The fake dies where a communicator is destroyed with registered memory, or after it was freed.
TEST_F(NcclFaults, MemoryIsRegisteredWhileItIsUsed) {
  const auto ends = failures(2, [](Communicator& group) {
    const Tensor kept = group.allocate(5000, DType::f32);
    {
      const Tensor dropped = group.allocate(3000, DType::f32);
      group.barrier().wait();
      EXPECT_EQ(fake::registered_buffers(), 4U);
      group.barrier().wait();
    }
    group.barrier().wait();
    group.barrier().wait();  // by now both ranks have taken theirs back
    EXPECT_EQ(fake::registered_buffers(), 2U);
    EXPECT_TRUE(group.take_notes().empty());
    group.barrier().wait();
  });
  for (const auto& end : ends) EXPECT_FALSE(end) << text_of<Error>(end);
  EXPECT_EQ(fake::registered_buffers(), 0U);
}

TEST_F(NcclFaults, MemoryThatIsNotRegisteredIsNotedOnceAndUsed) {
  fake::set_nccl_faults("no_registration");
  const auto ends = failures(2, [](Communicator& group) {
    const Tensor first = group.allocate(5000, DType::f32);
    const Tensor second = group.allocate(3000, DType::f32);
    EXPECT_EQ(fake::registered_buffers(), 0U);
    group.all_reduce(first, ReduceOp::sum).wait();
    EXPECT_THAT(group.take_notes(), ::testing::ElementsAre(HasSubstr("does not register")));
    EXPECT_TRUE(group.take_notes().empty());
  });
  for (const auto& end : ends) EXPECT_FALSE(end) << text_of<Error>(end);
}

TEST_F(NcclFaults, AnAbortTakesRegistrationsWithItAndLeavesTheMemoryToItsUsers) {
  fake::set_nccl_faults("stuck@1:rank1");
  std::vector<Tensor> kept(2);
  const auto ends = failures(2, [&](Communicator& group) {
    kept[static_cast<std::size_t>(group.rank())] = group.allocate(5000, DType::f32);
    group.all_reduce(kept[static_cast<std::size_t>(group.rank())], ReduceOp::sum).wait();
  });
  for (const auto& end : ends) EXPECT_THAT(text_of<CommError>(end), HasSubstr("79: "));
  EXPECT_EQ(fake::registered_buffers(), 0U);
  for (const Tensor& tensor : kept) EXPECT_EQ(on_host(tensor).size(), 5000);
}

// A kernel that never ends says nothing: the wait for it does.
TEST_F(NcclFaults, AStreamThatHangsEndsAtTheDeadlineOfItsGroup) {
  const Event never = Event::make();
  const auto ends = failures(2, [&](Communicator& group) {
    Stream compute(group.device(), "compute");
    group.wait_for(compute.record(), "nothing");
    compute.wait(never);
    try {
      group.wait_for(compute.record(), "the gradients of a step");
    } catch (...) {
      never.reach();
      throw;
    }
  });
  int late = 0;
  for (const auto& end : ends) {
    const std::string text = text_of<CommError>(end);
    if (text.find(": the gradients of a step: gave up after 1") != std::string::npos) ++late;
  }
  EXPECT_GE(late, 1) << text_of<CommError>(ends[0]) << "\n" << text_of<CommError>(ends[1]);
}

TEST_F(NcclFaults, ARankLeavesWithoutTheOthers) {
  const AbortSignal abort;
  auto ranks = make_nccl_ranks({0, 1, 2}, abort, seconds(10));
  ranks[1].backend.reset();
  ranks[0].backend.reset();
}

}  // namespace
}  // namespace lockstep
