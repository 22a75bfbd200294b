// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::fake {

enum class ElementType : std::uint8_t { f32, bf16, f16 };
std::size_t size_of(ElementType type);

/// A view of a matrix in memory, [rows, columns].
struct Matrix {
  void* data = nullptr;
  ElementType type = ElementType::f32;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t ld = 0;  // elements from a column to the next, or from a row to the next
  bool row_major = false;

  /// From the first element to behind the last.
  std::size_t bytes() const;
  float at(std::size_t row, std::size_t column) const;
  void put(std::size_t row, std::size_t column, float value) const;
};

/// D = epilogue(alpha · op(A) · op(B) + beta · C), sums in f32 in the order of k.
struct Product {
  Matrix a;
  Matrix b;
  Matrix c;  // not read where beta is 0; may be D
  Matrix d;
  Matrix bias;  // [rows of D, 1], added to every column; data null: none
  Matrix aux;   // takes what goes into the GELU; data null: none
  bool transpose_a = false;
  bool transpose_b = false;
  bool gelu = false;  // the tanh form
  float alpha = 1.0F;
  float beta = 0.0F;
};
void multiply(const Product& product);

}  // namespace lockstep::fake
