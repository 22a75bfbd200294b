// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/matmul.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/fakes/cuda/elements.h"

namespace lockstep::fake {
namespace {

constexpr std::size_t kTileRows = 4;
constexpr std::size_t kTileColumns = 8;

std::size_t rounded_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

// op(x) as f32 in tiles: element (i, k) at [i / tile][k][i % tile]; zeros beyond the last i.
std::vector<float> pack(const Matrix& x, bool rows_are_outer, std::size_t outer, std::size_t inner,
                        std::size_t tile) {
  std::vector<float> packed(rounded_up(outer, tile) * inner, 0.0F);
  for (std::size_t i = 0; i < outer; ++i) {
    float* to = packed.data() + i / tile * tile * inner + i % tile;
    for (std::size_t k = 0; k < inner; ++k) {
      to[k * tile] = rows_are_outer ? x.at(i, k) : x.at(k, i);
    }
  }
  return packed;
}

struct Tile {
  float sums[kTileRows][kTileColumns] = {};
};

Tile multiply_tile(const float* a, const float* b, std::size_t inner) {
  Tile tile;
  for (std::size_t k = 0; k < inner; ++k, a += kTileRows, b += kTileColumns) {
    for (std::size_t i = 0; i < kTileRows; ++i) {
      for (std::size_t j = 0; j < kTileColumns; ++j) tile.sums[i][j] += a[i] * b[j];
    }
  }
  return tile;
}

float gelu(float x) {
  constexpr float kRoot = 0.7978845608F;  // √(2/π)
  return 0.5F * x * (1.0F + std::tanh(kRoot * (x + 0.044715F * x * x * x)));
}

void finish(const Product& p, std::size_t row, std::size_t column, float sum) {
  float value = p.alpha * sum;
  if (p.beta != 0.0F) value += p.beta * p.c.at(row, column);
  if (p.bias.data != nullptr) value += p.bias.at(row, 0);
  if (p.aux.data != nullptr) p.aux.put(row, column, value);
  p.d.put(row, column, p.gelu ? gelu(value) : value);
}

}  // namespace

std::size_t size_of(ElementType type) { return type == ElementType::f32 ? 4 : 2; }

std::size_t Matrix::bytes() const {
  if (rows == 0 || columns == 0) return 0;
  const std::size_t lines = row_major ? rows : columns;
  const std::size_t line = row_major ? columns : rows;
  return ((lines - 1) * ld + line) * size_of(type);
}

float Matrix::at(std::size_t row, std::size_t column) const {
  const std::size_t i = row_major ? row * ld + column : column * ld + row;
  switch (type) {
    case ElementType::bf16:
      return from_bf16(static_cast<const std::uint16_t*>(data)[i]);
    case ElementType::f16:
      return from_f16(static_cast<const std::uint16_t*>(data)[i]);
    case ElementType::f32:
      break;
  }
  return static_cast<const float*>(data)[i];
}

void Matrix::put(std::size_t row, std::size_t column, float value) const {
  const std::size_t i = row_major ? row * ld + column : column * ld + row;
  switch (type) {
    case ElementType::bf16:
      static_cast<std::uint16_t*>(data)[i] = to_bf16(value);
      return;
    case ElementType::f16:
      static_cast<std::uint16_t*>(data)[i] = to_f16(value);
      return;
    case ElementType::f32:
      static_cast<float*>(data)[i] = value;
      return;
  }
}

void multiply(const Product& p) {
  const std::size_t m = p.d.rows;
  const std::size_t n = p.d.columns;
  const std::size_t inner = p.transpose_a ? p.a.rows : p.a.columns;
  const std::vector<float> a = pack(p.a, !p.transpose_a, m, inner, kTileRows);
  const std::vector<float> b = pack(p.b, p.transpose_b, n, inner, kTileColumns);
  for (std::size_t j = 0; j < n; j += kTileColumns) {
    for (std::size_t i = 0; i < m; i += kTileRows) {
      const Tile tile = multiply_tile(a.data() + i * inner, b.data() + j * inner, inner);
      for (std::size_t column = j; column < std::min(n, j + kTileColumns); ++column) {
        for (std::size_t row = i; row < std::min(m, i + kTileRows); ++row) {
          finish(p, row, column, tile.sums[row - i][column - j]);
        }
      }
    }
  }
}

}  // namespace lockstep::fake
