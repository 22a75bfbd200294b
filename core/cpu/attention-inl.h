// SPDX-License-Identifier: Apache-2.0
// What forward and backward of attention share: packing of one head, products of small blocks.
#if defined(LOCKSTEP_CORE_CPU_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_CORE_CPU_ATTENTION_INL_H
#undef LOCKSTEP_CORE_CPU_ATTENTION_INL_H
#else
#define LOCKSTEP_CORE_CPU_ATTENTION_INL_H
#endif

#include <cstddef>
#include <cstring>

#include "core/cpu/attention.h"
#include "core/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {

/// Hands out pieces of one scratch array.
class ScratchPieces {
 public:
  explicit ScratchPieces(float* memory) : next_(memory) {}
  float* take(std::size_t floats) {
    float* piece = next_;
    next_ += round_up(floats, kPadding);
    return piece;
  }

 private:
  float* next_;
};

/// Rows of one head inside [T, row] as a contiguous [rows, padded] array times `scale`; the padding
/// is zero.
inline void pack_rows(const float* x, std::size_t stride, std::size_t rows, std::size_t width,
                      std::size_t padded, float scale, float* out) {
  for (std::size_t r = 0; r < rows; ++r) {
    const float* from = x + r * stride;
    float* to = out + r * padded;
    for_each_vector(width, [=](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, scale)), d, to + i);
    });
    for (std::size_t i = width; i < padded; ++i) to[i] = 0.0F;
  }
}

/// The head transposed, a key block at a time: out [blocks, width, kKeyBlock]; columns behind the
/// last row are zero. Blocks are contiguous so that their rows do not share cache sets.
inline void pack_transposed(const float* x, std::size_t stride, std::size_t rows, std::size_t width,
                            float* out) {
  for (std::size_t begin = 0; begin < rows; begin += kKeyBlock) {
    const std::size_t count = rows - begin < kKeyBlock ? rows - begin : kKeyBlock;
    const float* from = x + begin * stride;
    for (std::size_t group = 0; group < kKeyBlock; group += kPadding) {
      for (std::size_t i = 0; i < width; ++i) {
        for (std::size_t r = group; r < group + kPadding; ++r) {
          out[i * kKeyBlock + r] = r < count ? from[r * stride + i] : 0.0F;
        }
      }
    }
    out += width * kKeyBlock;
  }
}

/// The left side of a product: element (m, k) is data[m·row + k·inner].
struct Left {
  const float* data;
  std::size_t row;
  std::size_t inner;
};

enum class Into { overwrite, add };

// c [kRows, kVectors vectors] (+)= a · b, kept in registers; one explicit FMA an element and step.
template <std::size_t kRows, std::size_t kVectors>
HWY_INLINE void product_tile(std::size_t inner, Left a, const float* HWY_RESTRICT b,
                             std::size_t b_stride, float* HWY_RESTRICT c, std::size_t c_stride,
                             Into into) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sums[kRows][kVectors];
  HWY_UNROLL(8)
  for (std::size_t m = 0; m < kRows; ++m) {
    HWY_UNROLL(2)
    for (std::size_t n = 0; n < kVectors; ++n) {
      sums[m][n] = into == Into::add ? hn::LoadU(d, c + m * c_stride + n * lanes) : hn::Zero(d);
    }
  }
  for (std::size_t k = 0; k < inner; ++k) {
    hn::Vec<Floats> right[kVectors];
    HWY_UNROLL(2)
    for (std::size_t n = 0; n < kVectors; ++n)
      right[n] = hn::LoadU(d, b + k * b_stride + n * lanes);
    HWY_UNROLL(8)
    for (std::size_t m = 0; m < kRows; ++m) {
      const auto left = hn::Set(d, a.data[m * a.row + k * a.inner]);
      HWY_UNROLL(2)
      for (std::size_t n = 0; n < kVectors; ++n) {
        sums[m][n] = hn::MulAdd(left, right[n], sums[m][n]);
      }
    }
  }
  HWY_UNROLL(8)
  for (std::size_t m = 0; m < kRows; ++m) {
    HWY_UNROLL(2)
    for (std::size_t n = 0; n < kVectors; ++n) {
      hn::StoreU(sums[m][n], d, c + m * c_stride + n * lanes);
    }
  }
}

template <std::size_t kRows>
HWY_NOINLINE void product_panel(std::size_t columns, std::size_t inner, Left a, const float* b,
                                std::size_t b_stride, float* c, std::size_t c_stride, Into into) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t n = 0;
  for (; n + 2 * lanes <= columns; n += 2 * lanes) {
    product_tile<kRows, 2>(inner, a, b + n, b_stride, c + n, c_stride, into);
  }
  for (; n < columns; n += lanes) {
    product_tile<kRows, 1>(inner, a, b + n, b_stride, c + n, c_stride, into);
  }
}

/// c [rows ≤ kPanel, columns] (+)= a [rows, inner] · b [inner, columns]. Columns are a multiple of
/// kPadding; an element's sum runs over `inner` in order, whatever the other sizes are.
inline void product(std::size_t rows, std::size_t columns, std::size_t inner, Left a,
                    const float* b, std::size_t b_stride, float* c, std::size_t c_stride,
                    Into into) {
  switch (rows) {
    case 1:
      return product_panel<1>(columns, inner, a, b, b_stride, c, c_stride, into);
    case 2:
      return product_panel<2>(columns, inner, a, b, b_stride, c, c_stride, into);
    case 3:
      return product_panel<3>(columns, inner, a, b, b_stride, c, c_stride, into);
    case 4:
      return product_panel<4>(columns, inner, a, b, b_stride, c, c_stride, into);
    case 5:
      return product_panel<5>(columns, inner, a, b, b_stride, c, c_stride, into);
    default:
      return product_panel<kPanel>(columns, inner, a, b, b_stride, c, c_stride, into);
  }
}

/// How many keys from `key` on the query `query` may see, within one block.
inline std::size_t visible_keys(std::size_t query, std::size_t key) {
  if (query < key) return 0;
  return query + 1 - key < kKeyBlock ? query + 1 - key : kKeyBlock;
}

}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
