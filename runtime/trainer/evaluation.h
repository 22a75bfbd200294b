// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/collectives/communicator.h"
#include "lockstep/core/stream.h"
#include "lockstep/runtime/loss.h"
#include "lockstep/runtime/module.h"
#include "lockstep/runtime/samples.h"

namespace lockstep {

struct EvaluationOptions {
  std::int64_t context = 0;
  std::int64_t micro_batch = 0;
  std::int64_t samples = 0;  // at most so many, from the first
};

/// The mean loss over the first held-back samples, in leaves of `micro_batch` that the ranks share
/// as they share training leaves: the same bits on any number of ranks. None without a sample.
/// Collective.
std::optional<double> evaluate(Communicator& group, Stream& compute, nn::Model& model,
                               nn::CrossEntropy& loss, const TokenStream& held_back,
                               const EvaluationOptions& options);

}  // namespace lockstep
