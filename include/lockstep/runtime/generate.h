// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/core/stream.h"
#include "lockstep/runtime/module.h"

namespace lockstep::nn {

/// How the next token is chosen.
struct SamplingOptions {
  double temperature = 1.0;     // 0: the largest logit, of equal ones the lowest token
  std::int64_t top_k = 0;       // among so many of the largest logits; 0: all
  std::uint64_t seed = 0;       // equal seeds choose equal tokens
  std::int64_t vocabulary = 0;  // tokens below it are chosen; 0: all
};

/// Throws ConfigError that names the flag for a negative or non-finite number.
void check(const SamplingOptions& options);

/// The token chosen from `logits`, as the `index`-th of a text: a pure function, drawn from
/// Philox with key (seed low, high), counter (index low, high, 0x73616d70, 0). Throws NumericError
/// for logits that are not finite.
std::int32_t choose_token(std::span<const float> logits, const SamplingOptions& options,
                          std::uint64_t index);

/// Continues `prompt` by `count` tokens, each told to `on_token`. The model sees the last `context`
/// tokens. `stream` is the model's. Throws UsageError for an empty prompt, else as above.
void generate(Model& model, Stream& stream, std::int64_t context, std::vector<std::int32_t> prompt,
              std::int64_t count, const SamplingOptions& options,
              const std::function<void(std::int32_t)>& on_token);

}  // namespace lockstep::nn
