// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "core/copy.h"
#include "lockstep/core/error.h"
#include "lockstep/core/rng.h"

namespace lockstep::nn {
namespace {

constexpr std::uint32_t kPurpose = 0x73616d70;  // "samp": no other draw has this counter

// In [0, 1).
double uniform(std::uint64_t seed, std::uint64_t index) {
  const auto x = philox4x32(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), kPurpose, 0},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t bits = x[0] | static_cast<std::uint64_t>(x[1]) << 32;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// The `top_k` largest, in order of the token.
std::vector<std::size_t> candidates(std::span<const float> logits, std::int64_t top_k) {
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  const auto wanted = static_cast<std::size_t>(top_k);
  if (top_k == 0 || wanted >= ids.size()) return ids;
  const auto larger = [&](std::size_t a, std::size_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  std::nth_element(ids.begin(), ids.begin() + top_k, ids.end(), larger);
  ids.resize(wanted);
  std::sort(ids.begin(), ids.end());
  return ids;
}

Tensor last_of(const std::vector<std::int32_t>& text, std::int64_t context) {
  const auto length = std::min(static_cast<std::int64_t>(text.size()), context);
  Tensor tokens(Device{}, {1, length}, DType::i32);
  std::copy(text.end() - length, text.end(), tokens.as<std::int32_t>());
  return tokens;
}

}  // namespace

void check(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0.0) {
    throw ConfigError("--temperature is not a number of at least 0",
                      "0 takes the most likely token, 1 samples as the model predicts");
  }
  if (options.top_k < 0) {
    throw ConfigError("--top_k is negative", "give a number of tokens, or 0 for all");
  }
}

std::int32_t choose_token(std::span<const float> logits, const SamplingOptions& options,
                          std::uint64_t index) {
  check(options);
  if (options.vocabulary > 0) {
    const auto limit = static_cast<std::size_t>(options.vocabulary);
    logits = logits.first(std::min(limit, logits.size()));
  }
  if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
    throw NumericError("the logits of token " + std::to_string(index) + " are not finite",
                       "take an older step with --step");
  }
  const auto best = std::max_element(logits.begin(), logits.end());  // the first of equal ones
  if (options.temperature == 0.0) return static_cast<std::int32_t>(best - logits.begin());

  const std::vector<std::size_t> ids = candidates(logits, options.top_k);
  std::vector<double> sums;  // so far
  double total = 0.0;
  for (const std::size_t id : ids) {
    total += std::exp((static_cast<double>(logits[id]) - *best) / options.temperature);
    sums.push_back(total);
  }
  const double at = uniform(options.seed, index) * total;
  const auto chosen = std::upper_bound(sums.begin(), sums.end() - 1, at);
  return static_cast<std::int32_t>(ids[static_cast<std::size_t>(chosen - sums.begin())]);
}

void generate(Model& model, Stream& stream, std::int64_t context, std::vector<std::int32_t> prompt,
              std::int64_t count, const SamplingOptions& options,
              const std::function<void(std::int32_t)>& on_token) {
  check(options);
  if (prompt.empty()) {
    throw UsageError("generate: the prompt is empty", "begin with at least one token");
  }
  std::vector<std::int32_t> text = std::move(prompt);
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor last = last_of(text, context);
    const Tensor tokens(stream.device(), last.shape(), last.dtype());
    queue_copy(stream, last, tokens);
    const Tensor forwarded = model.forward(tokens);  // [T, vocab]
    stream.synchronize();
    const Tensor logits = on_host(forwarded);
    const auto vocab = static_cast<std::size_t>(logits.dim(1));
    const std::span<const float> all(logits.as<float>(), static_cast<std::size_t>(logits.size()));
    text.push_back(choose_token(all.last(vocab), options, static_cast<std::uint64_t>(i)));
    on_token(text.back());
  }
}

}  // namespace lockstep::nn
