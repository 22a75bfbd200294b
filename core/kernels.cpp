// SPDX-License-Identifier: Apache-2.0
// Each kernel goes to the device of its stream.
#include "core/kernels.h"

#include "core/kernel_table.h"

namespace lockstep::kernels {
namespace {

constexpr KernelTable kCpuKernels{
    .gemm = cpu::gemm,
    .add_bias = cpu::add_bias,
    .bias_backward = cpu::bias_backward,
    .layer_norm_forward = cpu::layer_norm_forward,
    .layer_norm_backward = cpu::layer_norm_backward,
    .gelu_forward = cpu::gelu_forward,
    .gelu_backward = cpu::gelu_backward,
    .bias_gelu_forward = cpu::bias_gelu_forward,
    .attention_forward = cpu::attention_forward,
    .attention_backward = cpu::attention_backward,
    .embedding_forward = cpu::embedding_forward,
    .embedding_backward = cpu::embedding_backward,
    .cross_entropy = cpu::cross_entropy,
    .cross_entropy_loss = cpu::cross_entropy_loss,
    .add = cpu::add,
    .fill_zero = cpu::fill_zero,
    .copy = cpu::copy,
    .convert = cpu::convert,
    .round = cpu::round,
    .add_scaled = cpu::add_scaled,
    .adamw = cpu::adamw,
    .lamb_direction = cpu::lamb_direction,
    .sgd = cpu::sgd,
    .block_square_sums = cpu::block_square_sums,
};

const KernelTable& table_of(const Stream& stream) {
  return stream.device().kind == DeviceKind::cpu ? kCpuKernels : cuda_kernels();
}

}  // namespace

void gemm(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c, GemmOptions options) {
  table_of(stream).gemm(stream, a, b, c, options);
}

void add_bias(Stream& stream, const Tensor& bias, const Tensor& y) {
  table_of(stream).add_bias(stream, bias, y);
}

void bias_backward(Stream& stream, const Tensor& y_grad, const Tensor& bias_grad, bool add) {
  table_of(stream).bias_backward(stream, y_grad, bias_grad, add);
}

void layer_norm_forward(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  table_of(stream).layer_norm_forward(stream, x, weight, bias, epsilon, y, mean, rstd);
}

void layer_norm_backward(Stream& stream, const Tensor& y_grad, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         const LayerNormGradients& gradients) {
  table_of(stream).layer_norm_backward(stream, y_grad, x, weight, mean, rstd, gradients);
}

void gelu_forward(Stream& stream, const Tensor& x, const Tensor& y) {
  table_of(stream).gelu_forward(stream, x, y);
}

void gelu_backward(Stream& stream, const Tensor& x, const Tensor& y_grad, const Tensor& x_grad) {
  table_of(stream).gelu_backward(stream, x, y_grad, x_grad);
}

void bias_gelu_forward(Stream& stream, const Tensor& bias, const Tensor& x, const Tensor& y) {
  table_of(stream).bias_gelu_forward(stream, bias, x, y);
}

void attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                       const Tensor& log_sum_exp) {
  table_of(stream).attention_forward(stream, qkv, heads, y, log_sum_exp);
}

void attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y, const Tensor& y_grad,
                        const Tensor& log_sum_exp, int heads, const Tensor& qkv_grad) {
  table_of(stream).attention_backward(stream, qkv, y, y_grad, log_sum_exp, heads, qkv_grad);
}

void embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, const Tensor& y) {
  table_of(stream).embedding_forward(stream, tokens, token_table, position_table, y);
}

void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& y_grad,
                        const Tensor& token_grad, bool add_token, const Tensor& position_grad,
                        bool add_position) {
  table_of(stream).embedding_backward(stream, tokens, y_grad, token_grad, add_token, position_grad,
                                      add_position);
}

void cross_entropy(Stream& stream, const Tensor& logits_to_gradient, const Tensor& targets,
                   CrossEntropyOptions options, LossSums* sums) {
  table_of(stream).cross_entropy(stream, logits_to_gradient, targets, options, sums);
}

void cross_entropy_loss(Stream& stream, const Tensor& logits, const Tensor& targets,
                        CrossEntropyOptions options, LossSums* sums) {
  table_of(stream).cross_entropy_loss(stream, logits, targets, options, sums);
}

void add(Stream& stream, const Tensor& x, const Tensor& y) { table_of(stream).add(stream, x, y); }

void fill_zero(Stream& stream, const Tensor& x) { table_of(stream).fill_zero(stream, x); }

void copy(Stream& stream, const Tensor& x, const Tensor& y) { table_of(stream).copy(stream, x, y); }

void convert(Stream& stream, const Tensor& x, const Tensor& y) {
  table_of(stream).convert(stream, x, y);
}

void round(Stream& stream, const Tensor& x, DType type) { table_of(stream).round(stream, x, type); }

void add_scaled(Stream& stream, float factor, const Tensor& x, const Tensor& y) {
  table_of(stream).add_scaled(stream, factor, x, y);
}

void adamw(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v,
           AdamWStep step) {
  table_of(stream).adamw(stream, w, g, m, v, step);
}

void lamb_direction(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m,
                    const Tensor& v, AdamWStep step) {
  table_of(stream).lamb_direction(stream, w, g, m, v, step);
}

void sgd(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& buffer, SgdStep step) {
  table_of(stream).sgd(stream, w, g, buffer, step);
}

void block_square_sums(Stream& stream, const Tensor& x, std::int64_t block, double* sums) {
  table_of(stream).block_square_sums(stream, x, block, sums);
}

}  // namespace lockstep::kernels
