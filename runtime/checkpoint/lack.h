// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <string>
#include <system_error>

#include "lockstep/core/error.h"

namespace lockstep {

/// What a save fails with where the machine lacks memory or threads: the next save may find more,
/// and training need not end. `what`: "memory" or "threads".
inline StorageError lack_of(const std::string& object, const std::string& what) {
  return {object + ": no " + what + " to write it with",
          "see what else this machine runs, and its limits (ulimit -a)"};
}

/// Returns what `body`, which writes `object`, returns. Throws lack_of() where it runs out of
/// memory or threads.
template <typename Body>
auto write_with_resources(const std::string& object, const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    throw lack_of(object, "memory");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    throw lack_of(object, "threads");
  }
}

}  // namespace lockstep
