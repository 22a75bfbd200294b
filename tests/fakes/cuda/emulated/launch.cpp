// SPDX-License-Identifier: Apache-2.0
// In place of both other launch.cpp: the kernels themselves, at once and on this thread. Every
// second launch runs its warps in the opposite order.
#include "core/cuda/launch.h"

#include <functional>
#include <map>

#include "core/cuda/kernel_args.h"
#include "tests/fakes/cuda/block_runner.h"
#include "tests/fakes/cuda/emulated/cuda_words.h"

namespace lockstep::cuda {
namespace {

using Run = std::function<void(const fake::EmulatedGrid&, const void*)>;

template <typename Args>
Run run_of(const Kernel<Args>& kernel) {
  const auto function = reinterpret_cast<void (*)(const Args)>(const_cast<void*>(kernel.function));
  return [function](const fake::EmulatedGrid& grid, const void* args) {
    const Args copy = *static_cast<const Args*>(args);
    fake::run_grid(grid, [&] { function(copy); });
  };
}

template <typename... Args>
std::map<const void*, Run> runs_of(const Kernel<Args>&... kernels) {
  return {{kernels.function, run_of(kernels)}...};
}

}  // namespace

void launch(const char* /*name*/, const void* function, Grid grid, const void* args,
            std::size_t /*args_bytes*/, Stream& /*stream*/) {
  static const std::map<const void*, Run> runs =
      runs_of(kAdd, kAddScaled, kFillZero, kCopy, kConvert, kRound, kAddBias, kBiasGelu, kGelu,
              kGeluBackward, kColumnGroups, kGroupTotal, kLayerNorm, kLayerNormBackward,
              kLayerNormGroups, kCheckIndices, kEmbedding, kTokenOrder, kTokenGradient,
              kPositionGradient, kCrossEntropy, kLossSums, kAdamW, kLamb, kSgd, kBlockSquareSums);
  static bool descending = false;
  descending = !descending;
  fake::block_size() = {grid.threads.x, 1, 1};
  runs.at(function)({.blocks = {grid.blocks.x, grid.blocks.y, grid.blocks.z},
                     .threads = grid.threads.x,
                     .turns = descending ? fake::Turns::descending : fake::Turns::ascending},
                    args);
}

}  // namespace lockstep::cuda
