// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/md5_blocks.h"

#include <array>

#include "core/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/md5_blocks.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "hwy/highway.h"

#ifndef LOCKSTEP_CORE_CPU_MD5_BLOCKS_SINES
#define LOCKSTEP_CORE_CPU_MD5_BLOCKS_SINES
namespace lockstep::kernels {

// 2³² · |sin(i + 1)|, of RFC 1321.
constexpr std::array<std::uint32_t, 64> kSines = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

}  // namespace lockstep::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<std::uint32_t>;
using Vector = hn::Vec<Words>;

template <int kRound>
HWY_INLINE Vector mixed(Vector b, Vector c, Vector d) {
  if constexpr (kRound == 0) return hn::Xor(d, hn::And(b, hn::Xor(c, d)));
  if constexpr (kRound == 1) return hn::Xor(c, hn::And(d, hn::Xor(b, c)));
  if constexpr (kRound == 2) return hn::Xor(b, hn::Xor(c, d));
  return hn::Xor(c, hn::Or(b, hn::Not(d)));
}

template <int kRound, int kLeft>
HWY_INLINE void step(Vector& a, Vector b, Vector c, Vector d, Vector word, std::uint32_t sine) {
  const Vector known = hn::Add(hn::Add(a, word), hn::Set(Words(), sine));
  a = hn::Add(b, hn::RotateRight<32 - kLeft>(hn::Add(known, mixed<kRound>(b, c, d))));
}

/// 16 steps, which take word (kTimes · i + kPlus) mod 16.
template <int kRound, std::size_t kTimes, std::size_t kPlus, int kLeft0, int kLeft1, int kLeft2,
          int kLeft3>
HWY_INLINE void round(std::array<Vector, 4>& state, const Vector* words) {
  auto& [a, b, c, d] = state;
  for (std::size_t i = 0; i < 16; i += 4) {
    const auto word = [&](std::size_t j)
                          HWY_ATTR { return words[(kTimes * (i + j) + kPlus) % 16]; };
    const std::uint32_t* sines = &kSines[std::size_t{16} * kRound + i];
    step<kRound, kLeft0>(a, b, c, d, word(0), sines[0]);
    step<kRound, kLeft1>(d, a, b, c, word(1), sines[1]);
    step<kRound, kLeft2>(c, d, a, b, word(2), sines[2]);
    step<kRound, kLeft3>(b, c, d, a, word(3), sines[3]);
  }
}

/// The four words of each lane from `chunks`, where a vector holds 16 bytes of every fourth lane.
HWY_INLINE void load_words(const std::uint32_t* chunks, Vector* words) {
  const Words d;
  const hn::ScalableTag<std::uint64_t> pairs;
  const std::size_t lanes = hn::Lanes(d);
  const Vector v0 = hn::Load(d, chunks);
  const Vector v1 = hn::Load(d, chunks + lanes);
  const Vector v2 = hn::Load(d, chunks + 2 * lanes);
  const Vector v3 = hn::Load(d, chunks + 3 * lanes);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, v0, v1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, v2, v3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, v0, v1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, v2, v3));
  words[0] = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
  words[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
  words[2] = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
  words[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
}

std::size_t lanes_here() { return hn::Lanes(Words()); }

void blocks_here(std::uint32_t* state, const std::uint32_t* chunks, std::size_t blocks) {
  const Words d;
  const std::size_t lanes = hn::Lanes(d);
  std::array<Vector, 4> sums = {hn::Load(d, state), hn::Load(d, state + lanes),
                                hn::Load(d, state + 2 * lanes), hn::Load(d, state + 3 * lanes)};
  for (std::size_t block = 0; block < blocks; ++block, chunks += 16 * lanes) {
    std::array<Vector, 16> words;
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      load_words(chunks + 4 * quarter * lanes, &words[4 * quarter]);
    }
    std::array<Vector, 4> next = sums;
    round<0, 1, 0, 7, 12, 17, 22>(next, words.data());
    round<1, 5, 1, 5, 9, 14, 20>(next, words.data());
    round<2, 3, 5, 4, 11, 16, 23>(next, words.data());
    round<3, 7, 0, 6, 10, 15, 21>(next, words.data());
    for (std::size_t i = 0; i < 4; ++i) sums[i] = hn::Add(sums[i], next[i]);
  }
  for (std::size_t i = 0; i < 4; ++i) hn::Store(sums[i], d, state + i * lanes);
}

}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(lanes_here);
HWY_EXPORT(blocks_here);
}  // namespace

std::size_t md5_lanes() { return HWY_DYNAMIC_DISPATCH(lanes_here)(); }

void md5_blocks(std::uint32_t* state, const std::uint32_t* chunks, std::size_t blocks) {
  HWY_DYNAMIC_DISPATCH(blocks_here)(state, chunks, blocks);
}

}  // namespace lockstep::kernels
#endif
