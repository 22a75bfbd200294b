// SPDX-License-Identifier: Apache-2.0
// Sums, copies and biases.
#include <cstring>
#include <vector>

#include "core/arguments.h"
#include "core/cpu/simd_targets.h"
#include "core/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/elementwise.cpp"
#include "hwy/foreach_target.h"  // before highway.h

#include "core/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace {

// y += x.
void add_array(const float* x, float* y, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i);
  });
}

// y += factor · x.
void add_scaled_array(float factor, const float* x, float* y, std::size_t n) {
  for_each_vector(n, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::Set(d, factor), hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  });
}

void add_bias_rows(const float* bias, float* y, std::size_t rows, std::size_t columns) {
  for (std::size_t r = 0; r < rows; ++r) add_array(bias, y + r * columns, columns);
}

// sum += four rows, added as pairs.
void add_four_rows(const float* x, std::size_t columns, float* sum) {
  for_each_vector(columns, [=](auto d, std::size_t i) HWY_ATTR {
    const auto low = hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, x + columns + i));
    const auto high = hn::Add(hn::LoadU(d, x + 2 * columns + i), hn::LoadU(d, x + 3 * columns + i));
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), hn::Add(low, high)), d, sum + i);
  });
}

// Rows are summed in groups first: a sum of thousands of equals loses less.
constexpr std::size_t kGroup = 64;

// total = column sums; `group` is scratch.
void sum_columns(const float* x, std::size_t rows, std::size_t columns, float* group,
                 float* total) {
  std::memset(total, 0, columns * sizeof(float));
  for (std::size_t begin = 0; begin < rows; begin += kGroup) {
    const std::size_t end = begin + kGroup < rows ? begin + kGroup : rows;
    std::memset(group, 0, columns * sizeof(float));
    std::size_t r = begin;
    for (; r + 4 <= end; r += 4) add_four_rows(x + r * columns, columns, group);
    for (; r < end; ++r) add_array(x + r * columns, group, columns);
    add_array(group, total, columns);
  }
}

}  // namespace
}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(add_array);
HWY_EXPORT(add_scaled_array);
HWY_EXPORT(add_bias_rows);
HWY_EXPORT(sum_columns);
}  // namespace

void cpu::add(Stream& stream, const Tensor& x, const Tensor& y) {
  stream.enqueue([x, y] {
    HWY_DYNAMIC_DISPATCH(add_array)(x.as<float>(), y.as<float>(), to_size(x.size()));
  });
}

void cpu::add_scaled(Stream& stream, float factor, const Tensor& x, const Tensor& y) {
  stream.enqueue([factor, x, y] {
    HWY_DYNAMIC_DISPATCH(add_scaled_array)
    (factor, x.as<float>(), y.as<float>(), to_size(x.size()));
  });
}

void cpu::fill_zero(Stream& stream, const Tensor& x) {
  stream.enqueue([x] {
    if (x.size() > 0) std::memset(x.data(), 0, x.bytes());
  });
}

void cpu::copy(Stream& stream, const Tensor& x, const Tensor& y) {
  stream.enqueue([x, y] {
    if (x.size() > 0) std::memmove(y.data(), x.data(), x.bytes());
  });
}

void cpu::add_bias(Stream& stream, const Tensor& bias, const Tensor& y) {
  stream.enqueue([bias, y] {
    const Matrix shape = as_matrix(y);
    HWY_DYNAMIC_DISPATCH(add_bias_rows)
    (bias.as<float>(), y.as<float>(), to_size(shape.rows), to_size(shape.columns));
  });
}

void cpu::bias_backward(Stream& stream, const Tensor& y_grad, const Tensor& bias_grad, bool add) {
  stream.enqueue([y_grad, bias_grad, add] {
    if (bias_grad.size() == 0) return;
    const Matrix shape = as_matrix(y_grad);
    const std::size_t columns = to_size(shape.columns);
    std::vector<float> sums(2 * columns);
    float* total = add ? sums.data() + columns : bias_grad.as<float>();
    HWY_DYNAMIC_DISPATCH(sum_columns)
    (y_grad.as<float>(), to_size(shape.rows), columns, sums.data(), total);
    if (add) HWY_DYNAMIC_DISPATCH(add_array)(total, bias_grad.as<float>(), columns);
  });
}

}  // namespace lockstep::kernels
#endif
