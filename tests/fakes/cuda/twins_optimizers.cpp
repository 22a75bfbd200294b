// SPDX-License-Identifier: Apache-2.0
// Twins of the kernels of optimizer_steps.cu and square_sums.cu.
#include "tests/fakes/cuda/twins.h"

namespace lockstep::cuda {
namespace {

using namespace fake;

// False if the gate is closed; else the clip that it asks for.
bool enter(const Gate& gate, float& clip) {
  if (gate.open == nullptr) return true;
  if (*gate.open) clip = *gate.clip;
  return *gate.open;
}

void twin_adamw(const MomentStepArgs& a) {
  AdamWFactors f = a.factors;
  if (!enter(a.gate, f.clip)) return;
  for (std::int64_t i = 0; i < a.n; ++i) {
    kernels::adamw_element(a.w[i], a.g[i], a.m[i], a.v[i], f);
  }
}

void twin_lamb(const MomentStepArgs& a) {
  AdamWFactors f = a.factors;
  if (!enter(a.gate, f.clip)) return;
  for (std::int64_t i = 0; i < a.n; ++i) {
    kernels::lamb_element(a.w[i], a.g[i], a.m[i], a.v[i], f);
  }
}

void twin_sgd(const SgdArgs& a) {
  SgdFactors f = a.factors;
  if (!enter(a.gate, f.clip)) return;
  for (std::int64_t i = 0; i < a.n; ++i) {
    if (a.buffer == nullptr) {
      kernels::sgd_element(a.w[i], a.g[i], f);
    } else {
      kernels::sgd_element(a.w[i], a.g[i], a.buffer[i], f);
    }
  }
}

void twin_block_square_sums(const BlockSquareSumsArgs& a) {
  on_cpu([&](Stream& s) { kernels::block_square_sums(s, tensor_at(a.x, {a.n}), a.block, a.sums); });
}

}  // namespace

const Kernel<MomentStepArgs> kAdamW = twin("adamw", twin_adamw);
const Kernel<MomentStepArgs> kLamb = twin("lamb", twin_lamb);
const Kernel<SgdArgs> kSgd = twin("sgd", twin_sgd);
const Kernel<BlockSquareSumsArgs> kBlockSquareSums =
    twin("block_square_sums", twin_block_square_sums);

}  // namespace lockstep::cuda
