// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/preemption.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

namespace lockstep {
namespace {

TEST(SignalWatch, TellsTheFirstSignalAndKeepsIt) {
  SignalWatch watch;
  EXPECT_FALSE(watch.poll());
  raise(SIGUSR2);
  EXPECT_EQ(watch.poll(), "SIGUSR2");
  raise(SIGTERM);
  EXPECT_EQ(watch.poll(), "SIGUSR2");
}

TEST(SignalWatch, InsistsWhenTheFirstSignalComesAgainLater) {
  SignalWatch watch;
  EXPECT_FALSE(watch.insists());
  raise(SIGTERM);
  EXPECT_FALSE(watch.insists());
  raise(SIGTERM);
  EXPECT_FALSE(watch.insists()) << "told twice at once";
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  raise(SIGUSR2);
  EXPECT_FALSE(watch.insists()) << "another notice";
  raise(SIGTERM);
  EXPECT_TRUE(watch.insists());
  EXPECT_EQ(watch.poll(), "SIGTERM");
}

TEST(SignalWatch, SeesASignalToTheProcessWhileOtherThreadsRun) {
  for (const auto& [number, name] : {std::pair(SIGTERM, "SIGTERM"), std::pair(SIGINT, "SIGINT"),
                                     std::pair(SIGHUP, "SIGHUP"), std::pair(SIGUSR1, "SIGUSR1")}) {
    SignalWatch watch;
    std::thread other([number = number] { kill(getpid(), number); });
    other.join();
    EXPECT_EQ(watch.poll(), name);
  }
}

TEST(SignalWatch, GivesTheOldMaskBack) {
  { const SignalWatch watch; }
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGTERM), 0);
}

}  // namespace
}  // namespace lockstep
