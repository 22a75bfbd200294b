// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/layers.h"
#include "lockstep/runtime/module.h"

namespace lockstep::nn {

struct Gpt2Config {
  std::int64_t layers = 12;
  int heads = 12;
  std::int64_t hidden = 768;
  std::int64_t ffn = 0;  // 0: 4 · hidden
  std::int64_t vocab = 50257;
  std::int64_t context = 1024;  // tokens
  float epsilon = 1e-5F;        // of the layer norms
  bool operator==(const Gpt2Config&) const = default;
};

/// The configuration with `ffn` filled in. Throws ConfigError that names the key if a number is not
/// positive or `heads` does not divide `hidden`.
Gpt2Config resolved(Gpt2Config config);

/// The text of Hugging Face's config.json for this model.
std::string gpt2_config_json(const Gpt2Config& config);
/// Reads it. Throws ConfigError for another model type, activation or an untied head.
Gpt2Config gpt2_config_from_json(std::string_view text);

/// GPT-2 (Radford et al. 2019) with a tied head. Parameters carry Hugging Face's names.
///
/// visit() begins with transformer.wte.weight, whose gradient is complete last: the head writes its
/// part first, the embedding adds its own at the end of backward.
class Gpt2 final : public Model {
 public:
  /// `matrix_type`: f32, bf16 or f16; biases and norms are f32 in any case. The values are
  /// unspecified until initialize() or a load. Throws as resolved(), UsageError for another type.
  Gpt2(Stream& stream, const Gpt2Config& config, DType matrix_type = DType::f32);

  const Gpt2Config& config() const noexcept { return config_; }

  /// N(0, 0.02), the residual projections N(0, 0.02/√(2·layers)), biases 0, norms 1: a function of
  /// seed, name and index alone, rounded to the parameter's type. The host waits until it is done.
  void initialize(std::uint64_t seed);

  /// T may be shorter than the context. Throws UsageError for another shape or type.
  Tensor forward(const Tensor& tokens) override;
  void backward(const Tensor& logits_grad) override;
  void visit(const std::function<void(Parameter&)>& visitor) override;

 private:
  Stream* stream_;
  Gpt2Config config_;
  Workspace workspace_;
  Parameter wte_;  // [vocab, C]
  Parameter wpe_;  // [context, C]
  std::vector<std::unique_ptr<Block>> blocks_;
  LayerNorm ln_f_;
  Tensor tokens_;    // of the pass in flight
  Buffer embedded_;  // [B, T, C]
  Tensor last_;      // [B, T, C], what the head reads
  Buffer rounded_last_;
  Buffer logits_;  // [B·T, vocab]
  Buffer grad_;    // [B, T, C], of the residual stream
};

}  // namespace lockstep::nn
