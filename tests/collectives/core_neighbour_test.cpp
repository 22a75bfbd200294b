// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/core_neighbour.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace lockstep::shared_memory {
namespace {

cpu_set_t allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

// On a thread of its own, whose place then does not matter to other tests.
template <typename Body>
void on_a_thread(const Body& body) {
  std::thread(body).join();
}

// Whether the thread is moved by `times` waits for a rank on its own core.
bool moves(int ranks, int times) {
  bool moved = false;
  on_a_thread([&] {
    CoreNeighbour neighbour(ranks);
    const int core = current_core();
    for (int i = 0; i < times; ++i) neighbour.waited_for(core);
    moved = current_core() != core;
  });
  return moved;
}

TEST(CoreNeighbour, LeavesACoreThatItSharesAgainAndAgain) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two cores";
  // The scheduler may move a thread on its own account, also back: it does so seldom.
  int moved = 0;
  for (int i = 0; i < 10; ++i) moved += moves(2, 8) ? 1 : 0;
  EXPECT_GE(moved, 8);
}

TEST(CoreNeighbour, StaysWhereThereAreFewerCoresThanRanks) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  int moved = 0;
  for (int i = 0; i < 10; ++i) moved += moves(cores + 1, 8) ? 1 : 0;
  EXPECT_LE(moved, 2);
}

TEST(CoreNeighbour, MayUseTheSameCoresAfterwards) {
  on_a_thread([] {
    const cpu_set_t before = allowed();
    CoreNeighbour neighbour(2);
    for (int i = 0; i < 8; ++i) neighbour.waited_for(current_core());
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  });
}

TEST(CoreNeighbour, StaysWhereItMayUseOneCoreOnly) {
  on_a_thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    const int core = current_core();
    CPU_SET(static_cast<std::size_t>(core), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    CoreNeighbour neighbour(1);
    for (int i = 0; i < 8; ++i) neighbour.waited_for(core);
    EXPECT_EQ(current_core(), core);
  });
}

}  // namespace
}  // namespace lockstep::shared_memory
