// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep::tools {

using Arguments = std::vector<std::string>;

/// The commands of `lockstep`. Each takes what follows its name, prints to stdout, returns the exit
/// status and throws lockstep::Error for the caller to print.
int run_train(const Arguments& arguments);
int run_sample(const Arguments& arguments);
int run_ckpt(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_version(const Arguments& arguments);

}  // namespace lockstep::tools
