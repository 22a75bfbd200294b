// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/cuda/fused_attention.h"

namespace lockstep::cuda {

/// What LOCKSTEP_CUDA_ATTENTION asks for.
enum class AttentionWish : std::uint8_t {
  automatic,  // "auto", or not set: the library's where it is found and agrees with our kernels
  own,        // "own": our kernels
  cudnn       // "cudnn": the library's, or an error that says why not
};
/// Throws ConfigError for any other word.
AttentionWish attention_wish();

/// Whose kernels carry out attention in bf16 on one stream: a library's or our own.
///
/// A library is opened when it is first asked for, and each shape is tried once: on inputs that
/// depend on the shape alone, forward and backward must give the same bits twice, and agree with
/// our kernels within kAttentionTolerance. What does not is left to our kernels, with a note. So
/// the choice is the same on all ranks that have the same GPUs and libraries.
///
/// Calls from any thread.
class AttentionChoice {
 public:
  using Open = std::function<std::unique_ptr<FusedAttention>(Device)>;

  AttentionChoice(AttentionWish wish, Open open);

  /// The library, or null: our kernels. At the first call for a shape it waits for the stream. A T
  /// that is no multiple of 64 is left to our kernels untried: text that is generated has another
  /// one for each token.
  /// With AttentionWish::cudnn a DeviceError instead of null.
  FusedAttention* library_for(Stream& stream, const AttentionShape& shape);

  /// Why our kernels are used where the library's might be: a line a cause, each given once.
  std::vector<std::string> take_notes();

 private:
  std::string why_not(Stream& stream, const AttentionShape& shape);

  const AttentionWish wish_;
  const Open open_;
  std::mutex mutex_;  // of what follows
  bool is_opened_ = false;
  std::unique_ptr<FusedAttention> library_;
  std::string no_library_;                         // why it is null
  std::map<AttentionShape, std::string> decided_;  // empty: the library, else why not
  std::vector<std::string> notes_;
};

/// How far y, log_sum_exp and qkv_grad of a library may be from those of our bf16 kernels: ‖a − b‖
/// by ‖b‖. Both round queries, keys, values and probabilities to bf16 (2⁻⁹ each), the library also
/// its results: 0.2 to 0.3 % in the tests. A wrong mask, layout or scale makes more than 10 %.
inline constexpr double kAttentionTolerance = 0.02;

}  // namespace lockstep::cuda
