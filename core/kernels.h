// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

/// The numerical kernels, one function an idea, for every device.
///
/// Each call is queued on `stream` and returns at once; tensors are kept alive until the kernel has
/// run. Shapes are in the comments; a tensor of another shape or type is a UsageError, thrown
/// before anything is queued. Where a comment says [N, C], a tensor of more dimensions counts as
/// [rows, last dimension]. All arithmetic is f32 unless said otherwise. The same shapes give the
/// same bits: no atomics, sums in an order that depends on shapes alone.
///
/// `add` says whether an output is overwritten (false) or added to (true).
namespace lockstep::kernels {

/// Labels that count in neither loss nor tokens.
inline constexpr std::int32_t kIgnoredTarget = -100;

struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool add = false;
};
/// c [M, N] (+)= op(a) [M, K] · op(b) [K, N]. a and b are both f32, bf16 or f16; products are added
/// in f32 and c is f32. f16, and bf16 where the instruction set has no products of it, are widened
/// first.
void gemm(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c,
          GemmOptions options = {});

/// y [N, C] += bias [C] in every row.
void add_bias(Stream& stream, const Tensor& bias, const Tensor& y);
/// bias_grad [C] (+)= the column sums of y_grad [N, C].
void bias_backward(Stream& stream, const Tensor& y_grad, const Tensor& bias_grad, bool add);

/// y [N, C] = (x − mean) · rstd · weight + bias; mean, rstd [N] are kept for backward.
void layer_norm_forward(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd);
struct LayerNormGradients {
  Tensor x;       // [N, C], added to or overwritten by `add_x`
  Tensor weight;  // [C]
  Tensor bias;    // [C]
  bool add_x = false;
  bool add_parameters = false;
};
void layer_norm_backward(Stream& stream, const Tensor& y_grad, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         const LayerNormGradients& gradients);

/// y = gelu(x), tanh form (Hendrycks & Gimpel 2016), any shape.
void gelu_forward(Stream& stream, const Tensor& x, const Tensor& y);
/// x_grad = y_grad · gelu'(x). x_grad may be y_grad itself.
void gelu_backward(Stream& stream, const Tensor& x, const Tensor& y_grad, const Tensor& x_grad);
/// y = gelu(x + bias) with x [N, C] replaced by x + bias, which backward needs.
void bias_gelu_forward(Stream& stream, const Tensor& bias, const Tensor& x, const Tensor& y);

/// What the products of attention may be computed in. Softmax, sums and gradients are f32 in both.
enum class AttentionMath : std::uint8_t {
  f32,
  bf16,  // queries, keys, values, probabilities and their gradients rounded to bf16, on tensor
         // cores
};

/// Causal softmax attention without a T×T matrix (online softmax over key blocks: Milakov &
/// Gimelshein 2018; Dao et al., FlashAttention, 2022). qkv [B, T, 3C] as query | key | value, heads
/// of C/heads side by side; y [B, T, C]; log_sum_exp [B, heads, T] is kept for backward. Scale
/// 1/√(C/heads). The CPU computes in f32 whatever `math` allows.
void attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                       const Tensor& log_sum_exp, AttentionMath math = AttentionMath::f32);
/// qkv_grad [B, T, 3C] is overwritten.
void attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y, const Tensor& y_grad,
                        const Tensor& log_sum_exp, int heads, const Tensor& qkv_grad,
                        AttentionMath math = AttentionMath::f32);

/// y [B, T, C] = token_table[tokens [B, T] i32] + position_table[t]. The tables are both f32, bf16
/// or f16. A token outside the table is a DataError that names row, column and value; it fails the
/// stream.
void embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, const Tensor& y);
/// The tables' gradients from y_grad [B, T, C], in row order. Rows that no token names become zero
/// unless `add`.
void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& y_grad,
                        const Tensor& token_grad, bool add_token, const Tensor& position_grad,
                        bool add_position);

/// What a micro-batch's loss is, written by the stream. All sums over its valid tokens.
struct LossSums {
  double loss = 0.0;            // nats; token losses in f32, added in fp64 in row order
  std::int64_t tokens = 0;      // targets that are not ignored
  std::int64_t non_finite = 0;  // token losses that are NaN or infinite
};
struct CrossEntropyOptions {
  std::int64_t vocabulary = 0;  // real columns; those behind it are padding and get no probability
  float smoothing = 0.0F;       // target weight 1 − s + s/V
  float gradient_scale = 1.0F;  // of the gradient alone, for f16
};
/// Softmax cross-entropy over logits [N, padded V]; targets [N] i32. A target that is neither
/// ignored nor in [0, vocabulary) is a DataError that names row and value; it fails the stream.
/// `sums` must outlive the work. The gradient of the summed loss replaces the logits in place.
void cross_entropy(Stream& stream, const Tensor& logits_to_gradient, const Tensor& targets,
                   CrossEntropyOptions options, LossSums* sums);
/// The same without a gradient, for evaluation; the logits are unspecified afterwards.
void cross_entropy_loss(Stream& stream, const Tensor& logits, const Tensor& targets,
                        CrossEntropyOptions options, LossSums* sums);

/// y += x, any shape.
void add(Stream& stream, const Tensor& x, const Tensor& y);
/// x = 0.
void fill_zero(Stream& stream, const Tensor& x);
/// y = x, any shape, same type.
void copy(Stream& stream, const Tensor& x, const Tensor& y);

/// y = x, any shape, rounded to nearest even where y's type is narrower: between f32 and f32, bf16
/// or f16.
void convert(Stream& stream, const Tensor& x, const Tensor& y);
/// The same for `n` elements of host memory, at once. Throws UsageError for other types.
void convert_elements(const void* x, DType from, void* y, DType to, std::size_t n);

/// x = x rounded to `type` (f32, bf16 or f16), kept in f32.
void round(Stream& stream, const Tensor& x, DType type);
/// y [n] = x [n] rounded to `type`, in host memory, at once; y may be x.
void round_elements(const float* x, DType type, float* y, std::size_t n);

/// y += factor · x, any shape.
void add_scaled(Stream& stream, float factor, const Tensor& x, const Tensor& y);

/// What an update learns from work queued before it, without the host: read when its kernels run.
struct UpdateGate {
  float clip = 1.0F;  // min(1, limit / norm)
  bool open = true;   // false: nothing is changed
};

/// One step of AdamW (Loshchilov & Hutter 2019) over equal-sized flat arrays:
/// g' = (g · scale) · clip, m and v updated, w ← w·(1 − lr·decay) − lr · m̂ / (√v̂ + epsilon).
/// Adam with L2 (Kingma & Ba 2015) is the same with g' = (g · scale) · clip + l2 · w and no decay.
struct AdamWStep {
  float learning_rate = 0.0F;
  double beta1 = 0.9;  // f64, since 1 − 0.999F is wrong in the fifth digit
  double beta2 = 0.95;
  float epsilon = 1e-8F;
  float weight_decay = 0.0F;
  float l2 = 0.0F;
  float scale = 1.0F;                // 1 / tokens
  float clip = 1.0F;                 // min(1, clip / norm)
  std::int64_t t = 1;                // updates so far, this one included
  const UpdateGate* gate = nullptr;  // instead of `clip`, if given; must outlive the work
};
void adamw(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v,
           AdamWStep step);
/// The first half of a step of LAMB (You et al. 2020, algorithm 2): m and v as AdamW does, and
/// g ← m̂ / (√v̂ + epsilon) + weight_decay · w, the direction that each layer then scales.
/// step.learning_rate and step.l2 are not used.
void lamb_direction(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m,
                    const Tensor& v, AdamWStep step);

/// One step of SGD: g' = (g·scale)·clip + weight_decay·w; buffer ← g' on the first step (t = 1),
/// else momentum·buffer + g'; the update is g' + momentum·buffer with Nesterov, else the buffer (g'
/// where momentum is 0, then `buffer` may be undefined).
struct SgdStep {
  float learning_rate = 0.0F;
  float momentum = 0.0F;
  float weight_decay = 0.0F;
  float scale = 1.0F;
  float clip = 1.0F;
  bool nesterov = false;
  std::int64_t t = 1;
  const UpdateGate* gate = nullptr;  // as that of AdamWStep
};
void sgd(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& buffer, SgdStep step);

/// sums[b] = Σ x² in fp64 over block b of `block` elements of flat x; the last block may be short.
/// The order within a block is fixed. `sums` must outlive the work and have ⌈size/block⌉ entries.
void block_square_sums(Stream& stream, const Tensor& x, std::int64_t block, double* sums);

/// The instruction set that the kernels use on this machine, e.g. "AVX2", for records of a run.
const char* instruction_set();

/// What a reader should know of the kernels that this stream has used, a line each, once: a library
/// that is not used, and why. Any thread.
std::vector<std::string> notes(Stream& stream);

/// The library of gemm() with its version, e.g. "oneDNN 2.6.3".
std::string gemm_library();

}  // namespace lockstep::kernels
