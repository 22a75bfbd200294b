// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/block_runner.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::fake {
namespace {

constexpr unsigned kLanes = 32;
constexpr std::size_t kStackBytes = std::size_t{256} << 10;

enum class State { ready, at_warp_barrier, at_block_barrier, finished };

struct Thread {
  ucontext_t context{};
  std::unique_ptr<unsigned char[]> stack = std::make_unique<unsigned char[]>(kStackBytes);
  State state = State::ready;
  const void* shown = nullptr;
};

// Memory whose end is the end of the world.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = (bytes + page - 1) / page * page;
    mapped_ = used + page;
    map_ = static_cast<unsigned char*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (map_ == MAP_FAILED || mprotect(map_ + used, page, PROT_NONE) != 0) {
      throw std::runtime_error("no memory for a block's shared memory");
    }
    start_ = map_ + (used - bytes);
  }
  ~SharedMemory() { munmap(map_, mapped_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void forget() { std::memset(start_, 0xff, bytes_); }
  unsigned char* start() const { return start_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::size_t mapped_ = 0;
  unsigned char* map_ = nullptr;
  unsigned char* start_ = nullptr;
};

struct Runner {
  Runner(const EmulatedGrid& of, const std::function<void()>& what)
      : grid(of), body(what), shared(of.shared_bytes), threads(of.threads) {}

  void run_block(Index at);
  void run_warp(unsigned warp);
  unsigned in_turn(unsigned i, unsigned count) const {
    return grid.turns == Turns::ascending ? i : count - 1 - i;
  }
  std::size_t count(State state, std::size_t begin, std::size_t end) const {
    return static_cast<std::size_t>(
        std::count_if(threads.begin() + static_cast<std::ptrdiff_t>(begin),
                      threads.begin() + static_cast<std::ptrdiff_t>(end),
                      [state](const Thread& each) { return each.state == state; }));
  }

  const EmulatedGrid& grid;
  const std::function<void()>& body;
  SharedMemory shared;
  std::vector<Thread> threads;
  ucontext_t scheduler{};
  Thread* current = nullptr;
  std::exception_ptr error;  // of a thread, which has no stack to unwind to
  Index thread;
  Index block;
};

Runner* runner = nullptr;  // of the one grid that runs; a context's entry takes no pointer

struct Running {
  explicit Running(Runner& of_grid) { runner = &of_grid; }
  ~Running() { runner = nullptr; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

void yield(State state) {
  Thread& thread = *runner->current;
  thread.state = state;
  swapcontext(&thread.context, &runner->scheduler);
}

void enter_thread() {
  try {
    runner->body();
  } catch (...) {
    runner->error = std::current_exception();
  }
  yield(State::finished);
}

// As far as the warp gets without the others.
void Runner::run_warp(unsigned warp) {
  const std::size_t begin = std::size_t{warp} * kLanes;
  for (;;) {
    for (unsigned i = 0; i < kLanes; ++i) {
      thread.x = warp * kLanes + in_turn(i, kLanes);
      current = &threads[thread.x];
      if (current->state == State::ready) swapcontext(&scheduler, &current->context);
      if (error) std::rethrow_exception(error);
    }
    const std::size_t waiting = count(State::at_warp_barrier, begin, begin + kLanes);
    if (waiting == 0) return;
    if (waiting < kLanes) {
      throw std::logic_error("only " + std::to_string(waiting) + " lanes of warp " +
                             std::to_string(warp) + " exchange values");
    }
    for (unsigned i = 0; i < kLanes; ++i) threads[begin + i].state = State::ready;
  }
}

void Runner::run_block(Index at) {
  block = at;
  shared.forget();
  for (Thread& each : threads) {
    getcontext(&each.context);
    each.context.uc_stack.ss_sp = each.stack.get();
    each.context.uc_stack.ss_size = kStackBytes;
    each.context.uc_link = nullptr;
    makecontext(&each.context, enter_thread, 0);
    each.state = State::ready;
  }
  const unsigned warps = grid.threads / kLanes;
  for (;;) {
    for (unsigned i = 0; i < warps; ++i) run_warp(in_turn(i, warps));
    const std::size_t waiting = count(State::at_block_barrier, 0, threads.size());
    if (waiting == 0) return;
    if (waiting < threads.size()) {
      throw std::logic_error("only " + std::to_string(waiting) + " threads wait at a barrier");
    }
    for (Thread& each : threads) each.state = State::ready;
  }
}

}  // namespace

void run_grid(const EmulatedGrid& grid, const std::function<void()>& thread) {
  Runner of_grid(grid, thread);
  const Running mark(of_grid);
  Index at;
  for (at.z = 0; at.z < grid.blocks.z; ++at.z) {
    for (at.y = 0; at.y < grid.blocks.y; ++at.y) {
      for (at.x = 0; at.x < grid.blocks.x; ++at.x) of_grid.run_block(at);
    }
  }
}

const Index& thread_index() { return runner->thread; }
const Index& block_index() { return runner->block; }
const Index& grid_size() { return runner->grid.blocks; }
void* shared_start() { return runner->shared.start(); }

void wait_for_block() { yield(State::at_block_barrier); }
void wait_for_warp() { yield(State::at_warp_barrier); }

void show_lanes(const void* mine) {
  runner->current->shown = mine;
  wait_for_warp();
}

const void* shown_by(unsigned lane) {
  return runner->threads[runner->thread.x / kLanes * kLanes + lane].shown;
}

void check_shared(const void* data, std::size_t bytes, std::size_t alignment) {
  const auto* first = static_cast<const unsigned char*>(data);
  const unsigned char* start = runner->shared.start();
  if (first < start || first + bytes > start + runner->shared.bytes()) {
    throw std::logic_error("an address outside shared memory");
  }
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    throw std::logic_error("an address that is not aligned");
  }
}

}  // namespace lockstep::fake
