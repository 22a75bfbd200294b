// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The instruction sets that the kernels are compiled for; included before any header of Highway.
///
/// SSE4 is the floor, so that no kernel needs a scalar variant; AVX2 and AVX-512 (AVX3) are what
/// cloud machines have. What lies between adds compile time and no speed.
#define HWY_WANT_SSE4 1
#define HWY_DISABLED_TARGETS (HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_AVX3_DL)
