// SPDX-License-Identifier: Apache-2.0
#include "collectives/control_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

AbortCause exception_on(int rank, Outcome outcome) {
  return {.outcome = outcome,
          .kind = "exception",
          .origin_rank = rank,
          .what = "shard 7 is torn",
          .hint = "replace it"};
}

// Ranks as objects of this process, over real connections.
class Job {
 public:
  explicit Job(int size, milliseconds silence = milliseconds(5000),
               milliseconds exit = milliseconds(5000)) {
    ControlListener listener;
    ControlPoint point = listener.point();
    point.addresses = {"127.0.0.1"};
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    auto accepted = std::async(std::launch::async, [&] { return listener.accept(size, deadline); });
    std::vector<std::vector<ControlLink>> links(static_cast<std::size_t>(size));
    for (int rank = 1; rank < size; ++rank) {
      links[static_cast<std::size_t>(rank)].push_back(connect_to_root(point, rank, deadline));
    }
    links[0] = accepted.get();
    for (int rank = 0; rank < size; ++rank) {
      signals_.push_back(std::make_shared<AbortSignal>());
      ControlOptions options;
      options.rank = rank;
      options.size = size;
      options.heartbeat = milliseconds(50);
      options.silence_timeout = silence;
      options.exit_timeout = exit;
      channels_.push_back(std::make_unique<ControlChannel>(
          std::move(options), std::move(links[static_cast<std::size_t>(rank)]), signals_.back()));
    }
  }

  ControlChannel& rank(int rank) { return *channels_[static_cast<std::size_t>(rank)]; }
  AbortSignal& signal(int rank) { return *signals_[static_cast<std::size_t>(rank)]; }
  void kill(int rank) { channels_[static_cast<std::size_t>(rank)].reset(); }

  // The cause that `rank` has been told, once it has.
  std::optional<AbortCause> cause_of(int rank, milliseconds patience = milliseconds(2000)) {
    const auto& signal = signals_[static_cast<std::size_t>(rank)];
    const auto deadline = Clock::now() + patience;
    while (!signal->raised() && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return signal->cause();
  }

  std::vector<Verdict> leave(const std::vector<std::optional<Outcome>>& outcomes) {
    std::vector<std::future<Verdict>> pending;
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      if (!outcomes[rank]) continue;
      pending.push_back(std::async(std::launch::async, [this, rank, &outcomes] {
        return channels_[rank]->leave(*outcomes[rank]);
      }));
    }
    std::vector<Verdict> verdicts;
    verdicts.reserve(pending.size());
    for (auto& each : pending) verdicts.push_back(each.get());
    return verdicts;
  }

 private:
  std::vector<std::shared_ptr<AbortSignal>> signals_;
  std::vector<std::unique_ptr<ControlChannel>> channels_;
};

TEST(ControlChannel, TellsEveryRankTheCauseOfAnyRank) {
  for (const int origin : {0, 2}) {
    Job job(3);
    job.rank(origin).abort(exception_on(origin, Outcome::bad_data));
    for (int rank = 0; rank < 3; ++rank) {
      const auto cause = job.cause_of(rank);
      ASSERT_TRUE(cause.has_value()) << "rank " << rank;
      EXPECT_EQ(cause->origin_rank, origin);
      EXPECT_EQ(cause->kind, "exception");
      EXPECT_EQ(cause->what, "shard 7 is torn");
      EXPECT_EQ(cause->hint, "replace it");
      EXPECT_EQ(cause->outcome, Outcome::bad_data);
    }
  }
}

TEST(ControlChannel, NamesARankWhoseProcessIsGoneToAllOthersWithin200Milliseconds) {
  for (const int lost : {0, 1, 2}) {
    Job job(3);
    const auto began = Clock::now();
    job.kill(lost);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      const auto cause = job.cause_of(rank);
      ASSERT_TRUE(cause.has_value()) << "rank " << rank;
      EXPECT_EQ(cause->kind, "lost rank");
      EXPECT_EQ(cause->origin_rank, lost);
      EXPECT_EQ(cause->outcome, Outcome::failed_elsewhere);
      EXPECT_TRUE(job.rank(rank).lost_peer_within(milliseconds(2000)));
    }
    EXPECT_LT(Clock::now() - began, milliseconds(200));
  }
}

TEST(ControlChannel, CallsBackOnceEvenIfTheCallbackComesLate) {
  Job job(2);
  std::atomic<int> calls{0};
  job.rank(0).on_abort([&](const AbortCause&) { ++calls; });
  job.rank(0).abort(exception_on(0, Outcome::internal));
  job.rank(0).abort(exception_on(0, Outcome::config));
  ASSERT_TRUE(job.cause_of(1).has_value());
  std::promise<AbortCause> late;
  job.rank(1).on_abort([&](const AbortCause& cause) { late.set_value(cause); });
  auto told = late.get_future();
  ASSERT_EQ(told.wait_for(std::chrono::seconds(2)), std::future_status::ready);
  EXPECT_EQ(told.get().outcome, Outcome::internal);
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_EQ(calls, 1);
}

TEST(ControlChannel, ReleasesWhoWaitsForAHungOperationAfterAnAbort) {
  Job job(2);
  const Event hung = Event::make();
  const Event done = Event::make();
  done.reach();
  job.signal(1).watch(hung);
  job.signal(1).watch(done);
  job.rank(0).abort(exception_on(0, Outcome::bad_data));
  EXPECT_THROW(hung.wait_for(std::chrono::seconds(5)), CommError);
  EXPECT_NO_THROW(done.wait());
  // An operation that is queued behind the hung one.
  const Event later = Event::make();
  job.signal(1).watch(later);
  EXPECT_THROW(later.wait_for(std::chrono::seconds(0)), CommError);
}

TEST(ControlChannel, AgreesOnTheLargestCodeAndFinalisesOnlyThen) {
  Job job(3);
  for (const Verdict& verdict : job.leave({Outcome::finished, Outcome::saved, Outcome::finished})) {
    EXPECT_EQ(verdict.outcome, Outcome::saved);
    EXPECT_TRUE(verdict.complete);
  }
}

TEST(ControlChannel, AfterAnAbortAllLeaveWithItsCode) {
  Job job(3);
  job.rank(1).abort(exception_on(1, Outcome::config));
  for (const Verdict& verdict :
       job.leave({Outcome::failed_elsewhere, Outcome::config, Outcome::failed_elsewhere})) {
    EXPECT_EQ(verdict.outcome, Outcome::config);
    EXPECT_FALSE(verdict.complete);
  }
}

TEST(ControlChannel, SurvivorsOfRankZeroLeaveWithOneCode) {
  Job job(3);
  job.kill(0);
  ASSERT_TRUE(job.cause_of(1).has_value());
  const auto began = Clock::now();
  const auto verdicts = job.leave({std::nullopt, Outcome::failed_elsewhere, Outcome::internal});
  ASSERT_EQ(verdicts.size(), 2U);
  for (const Verdict& verdict : verdicts) EXPECT_EQ(verdict.outcome, Outcome::failed_elsewhere);
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(2));
}

TEST(ControlChannel, ARankThatDoesNotComeToTheExitIsNamed) {
  for (const int late : {0, 2}) {
    Job job(3, milliseconds(5000), milliseconds(200));
    std::vector<std::optional<Outcome>> outcomes(3, Outcome::finished);
    outcomes[static_cast<std::size_t>(late)] = std::nullopt;
    const auto verdicts = job.leave(outcomes);
    for (const Verdict& verdict : verdicts) {
      EXPECT_EQ(verdict.outcome, Outcome::failed_elsewhere);
      EXPECT_FALSE(verdict.complete);
    }
    const auto cause = job.cause_of(1);
    ASSERT_TRUE(cause.has_value());
    EXPECT_EQ(cause->kind, "late at exit");
    EXPECT_EQ(cause->origin_rank, late);
  }
}

TEST(ControlChannel, AProcessThatEndsAfterTheVerdictIsNotLost) {
  Job job(2);
  job.leave({Outcome::finished, Outcome::finished});
  job.kill(0);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(job.cause_of(1, milliseconds(0)).has_value());
  EXPECT_FALSE(job.rank(1).lost_peer_within(milliseconds(2000)));
}

TEST(ControlChannel, RankZeroLeavesWhenTheOthersKnowTheVerdict) {
  for (const bool reads : {true, false}) {
    ControlListener listener;
    ControlPoint point = listener.point();
    point.addresses = {"127.0.0.1"};
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    auto accepted = std::async(std::launch::async, [&] { return listener.accept(2, deadline); });
    ControlLink other = connect_to_root(point, 1, deadline);
    ControlOptions options;
    options.size = 2;
    ControlChannel root(options, accepted.get(), std::make_shared<AbortSignal>());
    other.send({.type = FrameType::goodbye, .body = encode_outcome(Outcome::saved)});
    const auto began = Clock::now();
    auto left = std::async(std::launch::async, [&] {
      const Verdict verdict = root.leave(Outcome::saved);
      EXPECT_EQ(verdict.outcome, Outcome::saved);
      return Clock::now() - began;
    });
    EXPECT_EQ(left.wait_for(milliseconds(150)), std::future_status::timeout)
        << "nobody has read it";
    std::optional<Verdict> told;
    while (reads && !told && Clock::now() < deadline) {
      other.read();
      while (const auto frame = other.next()) {
        if (frame->type != FrameType::verdict) continue;
        told = decode_verdict(frame->body);
        other.send(*frame);
      }
    }
    if (reads) {
      EXPECT_EQ(told.value().outcome, Outcome::saved);
      EXPECT_LT(left.get(), milliseconds(900));
    } else {
      EXPECT_LT(left.get(), milliseconds(3000)) << "and not for ever";
    }
  }
}

TEST(ControlChannel, OtherRanksLetRankZeroEndFirst) {
  Job job(2);
  job.leave({Outcome::saved, Outcome::saved});
  auto waiting = std::async(std::launch::async, [&] {
    job.rank(1).wait_for_root_to_end(milliseconds(5000));
    return Clock::now();
  });
  std::this_thread::sleep_for(milliseconds(100));
  const auto ended = Clock::now();
  job.kill(0);
  EXPECT_GE(waiting.get(), ended);
}

TEST(ControlChannel, ASilentRankCountsAsStopped) {
  // A connection that nobody serves: rank 1 is there and says nothing.
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  const FileHandle silent(ends[1]);
  std::vector<ControlLink> links(2);
  links[1] = ControlLink(FileHandle(ends[0]));
  const auto signal = std::make_shared<AbortSignal>();
  ControlOptions options;
  options.size = 2;
  options.names = {"rank 0", "rank 1 (pid 12 on host b)"};
  options.heartbeat = milliseconds(100);
  options.silence_timeout = milliseconds(300);
  const auto began = Clock::now();
  const ControlChannel channel(std::move(options), std::move(links), signal);
  while (!signal->raised() && Clock::now() < began + std::chrono::seconds(5)) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_TRUE(signal->raised());
  EXPECT_GE(Clock::now() - began, milliseconds(290));
  EXPECT_EQ(signal->cause()->kind, "stopped rank");
  EXPECT_EQ(signal->cause()->origin_rank, 1);
  EXPECT_THAT(signal->cause()->what, HasSubstr("rank 1 (pid 12 on host b)"));
}

TEST(ControlChannel, AJobOfOneAbortsAndLeavesAlone) {
  const auto signal = std::make_shared<AbortSignal>();
  ControlChannel channel({}, {}, signal);
  std::promise<AbortCause> told;
  channel.on_abort([&](const AbortCause& cause) { told.set_value(cause); });
  channel.abort(exception_on(0, Outcome::non_finite));
  auto cause = told.get_future();
  ASSERT_EQ(cause.wait_for(std::chrono::seconds(2)), std::future_status::ready);
  EXPECT_EQ(channel.leave(Outcome::internal).outcome, Outcome::non_finite);
}

TEST(ControlListener, IgnoresStrangersAndNamesTheMissing) {
  ControlListener listener;
  ControlPoint wrong = listener.point();
  wrong.addresses = {"127.0.0.1"};
  wrong.token.assign(wrong.token.size(), '0');
  const auto deadline = Clock::now() + milliseconds(400);
  auto stranger = std::async(std::launch::async,
                             [&] { EXPECT_THROW(connect_to_root(wrong, 1, deadline), CommError); });
  try {
    listener.accept(3, deadline);
    ADD_FAILURE() << "a stranger was let in";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no connection from rank 1, 2"));
  }
  stranger.get();
}

TEST(ControlListener, FindsRankZeroBehindAddressesThatLeadNowhere) {
  ControlListener listener;
  ControlPoint point = listener.point();
  point.addresses = {"not an address", "127.0.0.1"};
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  auto accepted = std::async(std::launch::async, [&] { return listener.accept(2, deadline); });
  EXPECT_TRUE(connect_to_root(decode_point(encode_point(point)), 1, deadline).open());
  EXPECT_TRUE(accepted.get()[1].open());
}

TEST(FrameReader, CutsAStreamInAnyPieces) {
  const std::string bytes =
      encode({.type = FrameType::goodbye, .body = encode_outcome(Outcome::saved)}) +
      encode({.type = FrameType::heartbeat, .body = {}});
  FrameReader reader;
  std::vector<Frame> frames;
  for (const char byte : bytes) {
    reader.feed({&byte, 1});
    while (auto frame = reader.next()) frames.push_back(*frame);
  }
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(decode_outcome(frames[0].body), Outcome::saved);
  EXPECT_EQ(frames[1].type, FrameType::heartbeat);
}

TEST(FrameReader, RefusesAStrangersBytes) {
  FrameReader reader;
  reader.feed("GET / HTTP/1.1\r\n");
  EXPECT_THROW(reader.next(), CommError);
}

}  // namespace
}  // namespace lockstep
