// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/space.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace lockstep::shared_memory {

void advise_whole_pages(std::byte* begin, std::size_t bytes, int advice) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t misfit = reinterpret_cast<std::uintptr_t>(begin) % page;
  const std::size_t skipped = misfit == 0 ? 0 : page - misfit;
  if (bytes < skipped + page) return;
  // Advice only: a system without it does the same, slower.
  static_cast<void>(madvise(begin + skipped, (bytes - skipped) / page * page, advice));
}

}  // namespace lockstep::shared_memory
