// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/attention.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/arguments.h"
#include "core/cpu/attention.h"
#include "core/cuda/attention_args.h"

namespace lockstep::kernels::cuda {
namespace {

using namespace lockstep::cuda;  // the kernels and their arguments

bool is_aligned(const Tensor& x) {
  constexpr std::uintptr_t bytes_of_four = 16;
  return reinterpret_cast<std::uintptr_t>(x.data()) % bytes_of_four == 0;
}

// Checks what the kernels and a grid can hold.
AttentionSizes sizes_of(const Arguments& arguments, const Tensor& qkv, int heads) {
  const AttentionArrays arrays = attention_sizes(qkv, heads);
  constexpr std::size_t most_tiles = 65535;
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<int>::max());
  arguments.require(arrays.width <= to_size(kAttentionWidths.back()),
                    "a head is wider than 128 columns",
                    "choose model.heads so that model.hidden / model.heads is at most 128");
  arguments.require(arrays.length <= most_tiles * to_size(kAttentionTile),
                    "T is more than 4,194,240", "use shorter sequences");
  arguments.require(arrays.batch * arrays.heads * arrays.length <= most,
                    "B · heads · T is 2³¹ or more", "use a smaller batch.micro");
  return {.batch = static_cast<int>(arrays.batch),
          .length = static_cast<int>(arrays.length),
          .heads = static_cast<int>(arrays.heads),
          .width = static_cast<int>(arrays.width),
          .scale = 1.0F / std::sqrt(static_cast<float>(arrays.width))};
}

// Which of kAttentionWidths holds the head.
std::size_t index_of(int width) {
  std::size_t index = 0;
  while (kAttentionWidths[index] < width) ++index;
  return index;
}

unsigned blocks_for(int count, int each) {
  return static_cast<unsigned>((std::int64_t{count} + each - 1) / each);
}

// Blocks of one head are far apart in the order of their start, those with most work first.
Grid grid_of(const AttentionSizes& sizes, int threads, unsigned shared_bytes) {
  return {.blocks = dim3(static_cast<unsigned>(sizes.batch * sizes.heads),
                         blocks_for(sizes.length, kAttentionTile)),
          .threads = dim3(static_cast<unsigned>(threads)),
          .shared_bytes = shared_bytes};
}

}  // namespace

void own_attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                           const Tensor& log_sum_exp, AttentionMath math) {
  AttentionSizes sizes = sizes_of(Arguments("attention_forward", stream), qkv, heads);
  if (qkv.size() == 0) return;
  sizes.vectors = sizes.width % 4 == 0 && is_aligned(qkv);
  const AttentionForwardArgs args{.sizes = sizes,
                                  .qkv = qkv.as<float>(),
                                  .y = y.as<float>(),
                                  .log_sum_exp = log_sum_exp.as<float>()};
  const std::size_t index = index_of(sizes.width);
  const int width = kAttentionWidths[index];
  if (math == AttentionMath::bf16) {
    launch(kAttentionForwardBf16[index],
           grid_of(sizes, kAttentionThreadsBf16, attention_shared_bytes_bf16(width, 3, 0)), args,
           stream);
  } else {
    launch(kAttentionForward[index],
           grid_of(sizes, kAttentionThreads, attention_shared_bytes(width, 2, true)), args, stream);
  }
}

void own_attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y,
                            const Tensor& y_grad, const Tensor& log_sum_exp, int heads,
                            const Tensor& qkv_grad, AttentionMath math) {
  AttentionSizes sizes = sizes_of(Arguments("attention_backward", stream), qkv, heads);
  if (qkv.size() == 0) return;
  sizes.vectors = sizes.width % 4 == 0 && is_aligned(qkv) && is_aligned(y_grad);
  const Tensor row_sums(stream.device(), {log_sum_exp.size()}, DType::f32);
  const AttentionBackwardArgs args{.sizes = sizes,
                                   .qkv = qkv.as<float>(),
                                   .y = y.as<float>(),
                                   .y_grad = y_grad.as<float>(),
                                   .log_sum_exp = log_sum_exp.as<float>(),
                                   .row_sums = row_sums.as<float>(),
                                   .qkv_grad = qkv_grad.as<float>()};
  constexpr int rows_of_block = kRowSumsThreads / 32;
  launch(kAttentionRowSums,
         {.blocks = dim3(blocks_for(static_cast<int>(row_sums.size()), rows_of_block)),
          .threads = dim3(kRowSumsThreads)},
         args, stream);
  const std::size_t index = index_of(sizes.width);
  const int width = kAttentionWidths[index];
  if (math == AttentionMath::bf16) {
    launch(kAttentionBackwardKeysBf16[index],
           grid_of(sizes, kAttentionThreadsBf16, attention_shared_bytes_bf16(width, 4, 2)), args,
           stream);
    launch(kAttentionBackwardQueriesBf16[index],
           grid_of(sizes, kAttentionThreadsBf16, attention_shared_bytes_bf16(width, 4, 0)), args,
           stream);
  } else {
    const Grid grid = grid_of(sizes, kAttentionThreads, attention_shared_bytes(width, 4, true));
    launch(kAttentionBackwardKeys[index], grid, args, stream);
    launch(kAttentionBackwardQueries[index], grid, args, stream);
  }
}

}  // namespace lockstep::kernels::cuda
