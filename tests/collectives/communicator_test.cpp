// SPDX-License-Identifier: Apache-2.0
#include "lockstep/collectives/communicator.h"
#include "lockstep/collectives/prepared_reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "collectives/abort_signal.h"
#include "collectives/backend.h"
#include "collectives/communication_thread.h"
#include "lockstep/core/error.h"
#include "lockstep/core/ledger.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// What the call throws as E; empty and a failure if it throws nothing.
template <typename E, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Communicator, NamesBothRanksAndBothOperationsWhenTheyDiffer) {
  testing_support::run_ranks(2, [](Communicator& group) {
    const Tensor data = Tensor::zeros(Device{}, {group.rank() == 0 ? 8 : 9}, DType::f32);
    const std::string what =
        message_of<UsageError>([&] { group.all_reduce(data, ReduceOp::sum).wait(); });
    EXPECT_THAT(what, AllOf(HasSubstr("rank 0 all_reduce #1 (8 x f32, sum)"),
                            HasSubstr("rank 1 all_reduce #1 (9 x f32, sum)")));
  });
}

TEST(Communicator, TellsDifferentOperationsApart) {
  testing_support::run_ranks(3, [](Communicator& group) {
    const Tensor data = Tensor::zeros(Device{}, {3}, DType::f32);
    const std::string what = message_of<UsageError>([&] {
      if (group.rank() == 2) {
        group.barrier().wait();
      } else {
        group.broadcast(data, 1).wait();
      }
    });
    EXPECT_THAT(what, AllOf(HasSubstr("barrier #1"), HasSubstr("broadcast #1 (12 x u8, root 1)")));
  });
}

TEST(Communicator, TellsDifferentPlansApart) {
  testing_support::run_ranks(2, [](Communicator& group) {
    const Tensor memory = group.allocate(64, DType::f32);
    const auto plan = std::make_shared<SumPlan>(ordered_plan(2));
    if (group.rank() == 1) std::swap(plan->adds[0].into, plan->adds[0].from);
    if (group.rank() == 1) plan->result = 1;
    EXPECT_THAT(message_of<UsageError>([&] { group.reduce_parts({memory}, memory, plan).wait(); }),
                HasSubstr("reduce_parts #2"));
  });
}

TEST(Communicator, TellsPreparedReductionsApart) {
  testing_support::run_ranks(2, [](Communicator& group) {
    const Tensor memory = group.allocate(64, DType::f32);
    const auto plan = std::make_shared<SumPlan>(ordered_plan(2));
    PreparedReduction first = group.prepare_reduce_parts({memory}, memory, plan);
    PreparedReduction second = group.prepare_reduce_parts({memory}, memory, plan);
    first.start().wait();
    PreparedReduction& wrong = group.rank() == 0 ? first : second;
    EXPECT_THAT(message_of<UsageError>([&] { wrong.start().wait(); }),
                HasSubstr("reduce_parts #5"));
  });
}

TEST(Communicator, APreparedReductionWaitsForItsInputAndFailsWithIt) {
  testing_support::run_ranks(2, [](Communicator& group) {
    const Tensor memory = group.allocate(4, DType::f32);
    const auto plan = std::make_shared<SumPlan>(ordered_plan(2));
    PreparedReduction sum = group.prepare_reduce_parts({memory}, memory, plan);
    const Event ready = Event::make();
    const Work work = sum.start(ready);
    EXPECT_FALSE(work.done());
    std::fill_n(memory.as<float>(), 4, 2.0F);
    ready.reach();
    work.wait();
    EXPECT_EQ(memory.as<float>()[3], 4.0F);
    const Event failed = Event::make();
    failed.fail(std::make_exception_ptr(NumericError("the input is wrong", "")));
    EXPECT_THAT(message_of<NumericError>([&] { sum.start(failed).wait(); }),
                HasSubstr("the input is wrong"));
    EXPECT_THROW(sum.start().wait(), NumericError);  // as everything after a failure
  });
}

TEST(Communicator, NamesTheLateRankAndWhatItLastDid) {
  const auto began = Clock::now();
  testing_support::run_ranks(
      3,
      [](Communicator& group) {
        group.barrier().wait();
        if (group.rank() == 1) {
          // Late, not gone: its memory stays until the others have given up.
          std::this_thread::sleep_for(std::chrono::milliseconds(600));
          return;
        }
        const Tensor data = Tensor::zeros(Device{}, {8}, DType::f32);
        const std::string what =
            message_of<CommError>([&] { group.all_reduce(data, ReduceOp::sum).wait(); });
        EXPECT_THAT(what, AllOf(HasSubstr("rank " + std::to_string(group.rank()) +
                                          ": all_reduce #2 of group trial (8 x f32)"),
                                HasSubstr("waiting for rank 1 (last began barrier #1)")));
      },
      {.name = "trial", .timeout = std::chrono::milliseconds(300)});
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(2));
}

TEST(Communicator, SaysWhenARankNeverCame) {
  testing_support::run_ranks(2,
                             [](Communicator& group) {
                               if (group.rank() == 1) {
                                 std::this_thread::sleep_for(std::chrono::milliseconds(400));
                                 return;
                               }
                               EXPECT_THAT(message_of<CommError>([&] { group.barrier().wait(); }),
                                           HasSubstr("rank 1 (has begun nothing yet)"));
                             },
                             {.timeout = std::chrono::milliseconds(150)});
}

TEST(Communicator, EndsEveryWaitWithTheCauseOfAnAbort) {
  auto abort = std::make_shared<AbortSignal>();
  std::atomic<Clock::rep> raised_at{0};
  testing_support::run_group(make_local_group(4, {}, abort), abort, [&](Communicator& group) {
    if (group.rank() == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      raised_at = Clock::now().time_since_epoch().count();
      abort->raise({.outcome = Outcome::failed_elsewhere,
                    .kind = "lost rank",
                    .origin_rank = 3,
                    .what = "the process was killed",
                    .hint = {}});
      return;
    }
    const Tensor data = Tensor::zeros(Device{}, {100'000}, DType::f32);
    try {
      group.all_reduce(data, ReduceOp::sum).wait();
      ADD_FAILURE() << "the operation ended without rank 3";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 3: lost rank: the process was killed"));
      EXPECT_EQ(error.origin_rank(), 3);
      EXPECT_EQ(error.outcome(), Outcome::failed_elsewhere);
    }
    EXPECT_LT(Clock::now().time_since_epoch().count() - raised_at.load(),
              Clock::duration(std::chrono::seconds(1)).count());
  });
}

TEST(Communicator, EndsAnOperationWhoseInputIsNotReadyWhenTheJobAborts) {
  auto abort = std::make_shared<AbortSignal>();
  testing_support::run_group(make_local_group(1, {}, abort), abort, [&](Communicator& group) {
    const Tensor data = Tensor::zeros(Device{}, {1}, DType::f32);
    const Event never = Event::make();
    const Work work = group.all_reduce(data, ReduceOp::sum, never);
    abort->raise({.kind = "exception", .origin_rank = 5, .what = "boom", .hint = {}});
    EXPECT_THAT(message_of<CommError>([&] { work.wait(); }), HasSubstr("rank 5"));
  });
}

// A library that neither returns nor looks at the abort signal, as Open MPI after a broken
// connection.
class HungBackend final : public Backend {
 public:
  explicit HungBackend(Event until) : until_(std::move(until)) {}
  const char* name() const noexcept override { return "hung"; }
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 2; }
  Task allocate(std::size_t, std::shared_ptr<std::byte>&, Wait&) override { return hang(); }
  Task all_reduce(std::byte*, std::size_t, DType, ReduceOp, Wait&) override { return hang(); }
  Task reduce_parts(std::span<float* const>, float*, std::size_t, const SumPlan&, Wait&) override {
    return hang();
  }
  Task reduce_scatter(std::span<float* const>, float*, std::size_t, const SumPlan&,
                      std::span<const std::size_t>, Wait&) override {
    return hang();
  }
  Task all_gather_slices(float*, std::size_t, std::span<const std::size_t>, Wait&) override {
    return hang();
  }
  Task all_gather(const std::byte*, std::byte*, std::size_t, Wait&) override { return hang(); }
  Task broadcast(std::byte*, std::size_t, int, Wait&) override { return hang(); }
  Task barrier(Wait&) override { return hang(); }

 private:
  Task hang() {
    until_.wait();
    co_return;
  }
  Event until_;
};

TEST(Communicator, NobodyWaitsForAHungOperationAfterAnAbort) {
  const Event end = Event::make();
  const auto abort = std::make_shared<AbortSignal>();
  const auto thread = std::make_shared<CommunicationThread>("comm");
  Communicator group(std::make_unique<HungBackend>(end), thread, abort, {});
  const Work running = group.barrier();
  const Work queued = group.barrier();
  Stream compute{Device{}};
  compute.wait(queued.event());
  abort->raise({.kind = "lost rank", .origin_rank = 1, .what = "it is gone", .hint = {}});
  abort->release_waiters();
  EXPECT_THAT(message_of<CommError>([&] { running.wait(); }), HasSubstr("rank 1: lost rank"));
  EXPECT_THROW(queued.wait(), CommError);
  EXPECT_THROW(compute.synchronize(), CommError);
  EXPECT_THROW(group.barrier().wait(), CommError);
  EXPECT_THROW(group.allocate(8, DType::f32), CommError);
  end.reach();
}

TEST(Communicator, WaitsForAnEventNoLongerThanForAnOperation) {
  auto abort = std::make_shared<AbortSignal>();
  const CommunicatorOptions options{.name = "data", .timeout = std::chrono::milliseconds(150)};
  testing_support::run_group(make_local_group(1, options, abort), abort, [&](Communicator& group) {
    group.wait_for({}, "nothing");
    const Event failed = Event::make();
    failed.fail(std::make_exception_ptr(DataError("row 3 is broken", "repack")));
    EXPECT_THROW(group.wait_for(failed, "a row"), DataError);
    const Event never = Event::make();
    EXPECT_THAT(message_of<CommError>([&] { group.wait_for(never, "the gradients"); }),
                HasSubstr("rank 0: the gradients: gave up after 0."));
    abort->raise({.kind = "exception", .origin_rank = 5, .what = "boom", .hint = {}});
    EXPECT_THAT(message_of<CommError>([&] { group.wait_for(never, "the gradients"); }),
                HasSubstr("rank 5"));
  });
}

TEST(Communicator, HandsOnTheFailureOfItsInput) {
  testing_support::run_ranks(1, [](Communicator& group) {
    const Event failed = Event::make();
    failed.fail(std::make_exception_ptr(DataError("row 3 is broken", "repack")));
    const Tensor data = Tensor::zeros(Device{}, {1}, DType::f32);
    EXPECT_THROW(group.all_reduce(data, ReduceOp::sum, failed).wait(), DataError);
  });
}

TEST(Communicator, ChecksWhatItIsGiven) {
  testing_support::run_ranks(2, [](Communicator& group) {
    const Tensor floats = Tensor::zeros(Device{}, {4}, DType::f32);
    const Tensor bytes = Tensor::zeros(Device{}, {4}, DType::u8);
    const auto plan = std::make_shared<SumPlan>(ordered_plan(2));
    EXPECT_THAT(message_of<UsageError>([&] { group.all_reduce(bytes, ReduceOp::sum); }),
                HasSubstr("elements are u8"));
    EXPECT_THAT(message_of<UsageError>([&] { group.all_gather(floats, floats); }),
                HasSubstr("out is [4] f32"));
    EXPECT_THAT(message_of<UsageError>([&] { group.broadcast(floats, 2); }),
                HasSubstr("root 2 of 2 ranks"));
    EXPECT_THAT(message_of<UsageError>([&] { group.reduce_parts({}, floats, plan); }),
                HasSubstr("0 parts, the plan wants 1"));
    EXPECT_THAT(message_of<UsageError>([&] { group.reduce_parts({bytes}, floats, plan); }),
                HasSubstr("a part is [4] u8, out is [4]"));
    const std::vector<std::vector<std::int64_t>> wrong = {
        {}, {0, 4}, {0, 2, 3}, {1, 2, 4}, {0, 5, 4}};
    for (const auto& edges : wrong) {
      const auto what = HasSubstr("do not cut 4 elements into 2 slices");
      EXPECT_THAT(message_of<UsageError>([&] { group.all_gather_slices(floats, edges); }), what);
      EXPECT_THAT(
          message_of<UsageError>([&] { group.reduce_scatter({floats}, floats, plan, edges); }),
          what);
    }
    EXPECT_THAT(message_of<UsageError>([&] {
                  group.all_gather_slices(bytes, {0, 2, 4});
                }),
                HasSubstr("elements are u8"));
  });
}

TEST(Communicator, RefusesPartsOutsideItsMemory) {
  testing_support::run_ranks(1, [](Communicator& group) {
    const Tensor own = Tensor::zeros(Device{}, {4}, DType::f32);
    const auto plan = std::make_shared<SumPlan>(ordered_plan(1));
    EXPECT_THAT(message_of<UsageError>([&] { group.reduce_parts({own}, own, plan).wait(); }),
                HasSubstr("does not lie in memory of this group"));
  });
}

TEST(Communicator, WritesEveryOperationToTheLedgerBeforeItRuns) {
  const testing_support::ScratchFolder folder;
  const std::string path = (folder.path() / "ledger").string();
  {
    const auto ring = std::make_shared<LedgerRing>(path, 0, 1, 1, 16);
    testing_support::run_ranks(1,
                               [&](Communicator& group) {
                                 group.observe(ring, nullptr);
                                 group.barrier().wait();
                                 const Tensor data = Tensor::zeros(Device{}, {5}, DType::f64);
                                 const Event never = Event::make();
                                 const Work stuck = group.all_reduce(data, ReduceOp::sum, never);
                                 const auto records = LedgerRing::read(path).second;
                                 ASSERT_EQ(records.size(), 2U);
                                 EXPECT_GT(records[0].ended_ns, 0);
                                 EXPECT_EQ(records[1].sequence, 2U);
                                 EXPECT_EQ(records[1].count, 5U);
                                 EXPECT_EQ(records[1].operation,
                                           static_cast<int>(CommOperation::all_reduce));
                                 EXPECT_EQ(records[1].started_ns, 0);
                                 EXPECT_STREQ(records[1].group.data(), "data");
                                 never.reach();
                                 stuck.wait();
                               },
                               {.name = "data"});
  }
}

}  // namespace
}  // namespace lockstep
