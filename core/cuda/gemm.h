// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels.h"

namespace lockstep::kernels::cuda {

/// As in core/kernels.h, by cuBLASLt: f32 in f32 (no TF32), bf16 and f16 on tensor cores, sums in
/// f32. One algorithm a shape, so that equal shapes give equal bits on one kind of device; memory
/// that is not aligned to 16 bytes counts as another shape.
void gemm(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c,
          GemmOptions options = {});

/// c [M, N] (+)= op(a) · op(b) + bias [N]: gemm(), then add_bias(), in one kernel where cuBLASLt
/// has one.
void gemm_bias(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& bias,
               const Tensor& c, GemmOptions options = {});

/// x [M, N] = op(a) · op(b) + bias [N], which backward needs, and y [M, N] = gelu(x): gemm(), then
/// bias_gelu_forward(), in one kernel where cuBLASLt has one. `options.add` is not for this.
void gemm_bias_gelu(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& bias,
                    const Tensor& x, const Tensor& y, GemmOptions options = {});

}  // namespace lockstep::kernels::cuda
