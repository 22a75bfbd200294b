// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

/// Runs the blocks of a kernel on the host, one after another. The threads of a block take turns:
/// each runs until it waits for its warp or its block, so that a missing barrier lets one warp run
/// far ahead of the others. Shared memory starts as NaNs and ends at a page that must not be
/// touched. For one thread at a time.
namespace lockstep::fake {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

/// Which of warps, and of lanes inside them, run first between two barriers.
enum class Turns { ascending, descending };

struct EmulatedGrid {
  Index blocks{1, 1, 1};
  unsigned threads = 32;  // of a block, whole warps
  std::size_t shared_bytes = 0;
  Turns turns = Turns::ascending;
};

/// Runs `thread` once for every thread of the grid. Throws std::logic_error where a device would
/// hang: threads at different barriers, or at one that others never reach.
void run_grid(const EmulatedGrid& grid, const std::function<void()>& thread);

// What the running thread sees.
const Index& thread_index();
const Index& block_index();
const Index& grid_size();
void* shared_start();

/// Waits for all threads of the block.
void wait_for_block();
/// Waits for all lanes of the warp.
void wait_for_warp();
/// Shows `mine` to the warp and gets what lane `lane` shows; valid until wait_for_warp().
void show_lanes(const void* mine);
const void* shown_by(unsigned lane);

/// Throws std::logic_error unless [data, data + bytes) is shared memory with that alignment.
void check_shared(const void* data, std::size_t bytes, std::size_t alignment);

}  // namespace lockstep::fake
