// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/cuda/launch.h"
#include "core/functors.h"

/// What each kernel of CUDA is given, and the kernels themselves: defined beside their __global__
/// functions in core/cuda/kernels/, or beside their twins on the host in tests/fakes/cuda/.
///
/// All arrays are dense and row-major, in device memory unless said otherwise, and aligned to no
/// more than an element. A pointer named `skip` may be null; a kernel changes nothing where it
/// points to a number other than 0, which check_indices left there.
namespace lockstep::cuda {

using kernels::AdamWFactors;
using kernels::Real;
using kernels::SgdFactors;

/// Rows that a sum over rows adds up first, before they join the total: as on the CPU.
inline constexpr std::int64_t kGroupRows = 64;

/// Threads of a block, where the order of a sum depends on them.
inline constexpr int kCheckIndicesThreads = 1024;
inline constexpr int kCrossEntropyThreads = 512;
inline constexpr int kLossSumsThreads = 1024;
inline constexpr int kSquareSumsThreads = 256;

/// Rows that each warp of token_order finds the places of.
inline constexpr int kTokenOrderRows = 4;

// y [n] += x [n].
struct AddArgs {
  const float* x;
  float* y;
  std::int64_t n;
};
extern const Kernel<AddArgs> kAdd;

// y [n] += factor · x [n].
struct AddScaledArgs {
  float factor;
  const float* x;
  float* y;
  std::int64_t n;
};
extern const Kernel<AddScaledArgs> kAddScaled;

// `bytes` of x become 0.
struct FillZeroArgs {
  void* x;
  std::int64_t bytes;
  const std::int32_t* skip;
};
extern const Kernel<FillZeroArgs> kFillZero;

// `bytes` of x go to y, which is x or does not overlap it.
struct CopyArgs {
  const void* x;
  void* y;
  std::int64_t bytes;
};
extern const Kernel<CopyArgs> kCopy;

// y [n] of type `to` = x [n] of type `from`; one of the two is f32.
struct ConvertArgs {
  const void* x;
  Real from;
  void* y;
  Real to;
  std::int64_t n;
};
extern const Kernel<ConvertArgs> kConvert;

// x [n] is rounded to `type`.
struct RoundArgs {
  float* x;
  Real type;
  std::int64_t n;
};
extern const Kernel<RoundArgs> kRound;

// y [rows, columns] += bias [columns].
struct AddBiasArgs {
  const float* bias;
  float* y;
  std::int64_t rows;
  std::int64_t columns;
};
extern const Kernel<AddBiasArgs> kAddBias;

// x [rows, columns] += bias [columns], y = gelu(x).
struct BiasGeluArgs {
  const float* bias;
  float* x;
  float* y;
  std::int64_t rows;
  std::int64_t columns;
};
extern const Kernel<BiasGeluArgs> kBiasGelu;

// y [n] = gelu(x [n]).
struct GeluArgs {
  const float* x;
  float* y;
  std::int64_t n;
};
extern const Kernel<GeluArgs> kGelu;

// x_grad [n] = y_grad [n] · gelu'(x [n]); x_grad may be y_grad.
struct GeluBackwardArgs {
  const float* x;
  const float* y_grad;
  float* x_grad;
  std::int64_t n;
};
extern const Kernel<GeluBackwardArgs> kGeluBackward;

// groups [⌈rows / kGroupRows⌉, columns]: the column sums of each group of rows of x.
struct ColumnGroupsArgs {
  const float* x;
  std::int64_t rows;
  std::int64_t columns;
  float* groups;
};
extern const Kernel<ColumnGroupsArgs> kColumnGroups;

// out [columns] (+)= Σ groups [count, columns], in their order from 0.
struct GroupTotalArgs {
  const float* groups;
  std::int64_t count;
  std::int64_t columns;
  float* out;
  bool add;
};
extern const Kernel<GroupTotalArgs> kGroupTotal;

// x, y [rows, columns]; weight, bias [columns]; mean, rstd [rows].
struct LayerNormArgs {
  const float* x;
  const float* weight;
  const float* bias;
  float epsilon;
  float* y;
  float* mean;
  float* rstd;
  std::int64_t rows;
  std::int64_t columns;
};
extern const Kernel<LayerNormArgs> kLayerNorm;

// As above; x_grad [rows, columns] is overwritten or, with `add`, added to.
struct LayerNormBackwardArgs {
  const float* y_grad;
  const float* x;
  const float* weight;
  const float* mean;
  const float* rstd;
  float* x_grad;
  bool add;
  std::int64_t rows;
  std::int64_t columns;
};
extern const Kernel<LayerNormBackwardArgs> kLayerNormBackward;

// weight_groups, bias_groups [⌈rows / kGroupRows⌉, columns]: the gradients of each group of rows.
struct LayerNormGroupsArgs {
  const float* y_grad;
  const float* x;
  const float* mean;
  const float* rstd;
  float* weight_groups;
  float* bias_groups;
  std::int64_t rows;
  std::int64_t columns;
};
extern const Kernel<LayerNormGroupsArgs> kLayerNormGroups;

/// The first index that is outside its table, as the host reads it.
struct BadIndex {
  std::int64_t found;  // 0: none
  std::int64_t position;
  std::int64_t value;
};

// The first of values [n] that is neither in [0, limit) nor, with `may_ignore`, `ignored`: to `bad`
// in pinned memory, and to `skip` [1] whether there is one. One block.
struct CheckIndicesArgs {
  const std::int32_t* values;
  std::int64_t n;
  std::int64_t limit;
  bool may_ignore;
  std::int32_t ignored;
  BadIndex* bad;
  std::int32_t* skip;
};
extern const Kernel<CheckIndicesArgs> kCheckIndices;

// tokens [rows]; token_table [any, columns] and position_table [≥ length, columns] of `type`;
// y [rows, columns]. Row i is at position i mod length.
struct EmbeddingArgs {
  const std::int32_t* tokens;
  const void* token_table;
  const void* position_table;
  Real type;
  float* y;
  std::int64_t rows;
  std::int64_t length;
  std::int64_t columns;
  const std::int32_t* skip;
};
extern const Kernel<EmbeddingArgs> kEmbedding;

// order [rows]: the rows by token, those of one token in their order.
struct TokenOrderArgs {
  const std::int32_t* tokens;
  std::int32_t* order;
  std::int64_t rows;
  const std::int32_t* skip;
};
extern const Kernel<TokenOrderArgs> kTokenOrder;

// token_grad [any, columns] += the rows of y_grad [rows, columns] that name each token, in order.
struct TokenGradientArgs {
  const std::int32_t* tokens;
  const std::int32_t* order;
  const float* y_grad;
  float* token_grad;
  std::int64_t rows;
  std::int64_t columns;
  const std::int32_t* skip;
};
extern const Kernel<TokenGradientArgs> kTokenGradient;

// position_grad [≥ length, columns] += Σ y_grad [batch, length, columns] over the batch, in order.
struct PositionGradientArgs {
  const float* y_grad;
  float* position_grad;
  std::int64_t batch;
  std::int64_t length;
  std::int64_t columns;
  const std::int32_t* skip;
};
extern const Kernel<PositionGradientArgs> kPositionGradient;

// logits [rows, columns], of which the first `vocabulary` columns are real; targets [rows];
// losses [rows], 0 where the target is ignored. With `gradient`, it replaces the logits.
struct CrossEntropyArgs {
  float* logits;
  const std::int32_t* targets;
  std::int32_t ignored;
  float* losses;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t vocabulary;
  float smoothing;
  float gradient_scale;
  bool gradient;
  const std::int32_t* skip;
};
extern const Kernel<CrossEntropyArgs> kCrossEntropy;

// losses, targets [rows]; the three sums, each of one number, are in pinned memory. One block.
struct LossSumsArgs {
  const float* losses;
  const std::int32_t* targets;
  std::int32_t ignored;
  std::int64_t rows;
  double* loss;
  std::int64_t* tokens;
  std::int64_t* non_finite;
  const std::int32_t* skip;
};
extern const Kernel<LossSumsArgs> kLossSums;

/// kernels::UpdateGate as kernels see it: both null, or both in pinned memory.
struct Gate {
  const float* clip;  // instead of the factor of that name
  const bool* open;
};

// w, g, m, v [n]. AdamW changes w, m and v; LAMB g, which becomes the direction, m and v.
struct MomentStepArgs {
  float* w;
  float* g;
  float* m;
  float* v;
  std::int64_t n;
  AdamWFactors factors;
  Gate gate;
};
extern const Kernel<MomentStepArgs> kAdamW;
extern const Kernel<MomentStepArgs> kLamb;

// w, g, buffer [n]; no buffer without momentum.
struct SgdArgs {
  float* w;
  const float* g;
  float* buffer;
  std::int64_t n;
  SgdFactors factors;
  Gate gate;
};
extern const Kernel<SgdArgs> kSgd;

// x [n]; sums [⌈n / block⌉] in pinned memory.
struct BlockSquareSumsArgs {
  const float* x;
  std::int64_t n;
  std::int64_t block;
  double* sums;
};
extern const Kernel<BlockSquareSumsArgs> kBlockSquareSums;

}  // namespace lockstep::cuda
