// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep::fake {

/// The rank that a process started by a test is: argv after "--rank". Returns the exit status.
int run_rank(int argc, char** argv);

}  // namespace lockstep::fake
