// SPDX-License-Identifier: Apache-2.0
// Each kernel goes to the device of its stream, with arguments that have been checked here.
#include "core/kernels.h"

#include "core/arguments.h"
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
  check_gemm(Arguments("gemm", stream), a, b, c, options);
  table_of(stream).gemm(stream, a, b, c, options);
}

void add_bias(Stream& stream, const Tensor& bias, const Tensor& y) {
  const Arguments arguments("add_bias", stream);
  arguments.tensor("y", y);
  arguments.sized("bias", bias, as_matrix(y).columns);
  table_of(stream).add_bias(stream, bias, y);
}

void bias_backward(Stream& stream, const Tensor& y_grad, const Tensor& bias_grad, bool add) {
  const Arguments arguments("bias_backward", stream);
  arguments.tensor("y_grad", y_grad);
  arguments.sized("bias_grad", bias_grad, as_matrix(y_grad).columns);
  table_of(stream).bias_backward(stream, y_grad, bias_grad, add);
}

void layer_norm_forward(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const Arguments arguments("layer_norm_forward", stream);
  check_layer_norm(arguments, x, weight, mean, rstd);
  arguments.sized("bias", bias, weight.size());
  arguments.sized("y", y, x.size());
  table_of(stream).layer_norm_forward(stream, x, weight, bias, epsilon, y, mean, rstd);
}

void layer_norm_backward(Stream& stream, const Tensor& y_grad, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         const LayerNormGradients& gradients) {
  const Arguments arguments("layer_norm_backward", stream);
  check_layer_norm(arguments, x, weight, mean, rstd);
  arguments.sized("y_grad", y_grad, x.size());
  arguments.sized("gradients.x", gradients.x, x.size());
  arguments.sized("gradients.weight", gradients.weight, weight.size());
  arguments.sized("gradients.bias", gradients.bias, weight.size());
  table_of(stream).layer_norm_backward(stream, y_grad, x, weight, mean, rstd, gradients);
}

void gelu_forward(Stream& stream, const Tensor& x, const Tensor& y) {
  const Arguments arguments("gelu_forward", stream);
  arguments.tensor("x", x);
  arguments.sized("y", y, x.size());
  table_of(stream).gelu_forward(stream, x, y);
}

void gelu_backward(Stream& stream, const Tensor& x, const Tensor& y_grad, const Tensor& x_grad) {
  const Arguments arguments("gelu_backward", stream);
  arguments.tensor("x", x);
  arguments.sized("y_grad", y_grad, x.size());
  arguments.sized("x_grad", x_grad, x.size());
  table_of(stream).gelu_backward(stream, x, y_grad, x_grad);
}

void bias_gelu_forward(Stream& stream, const Tensor& bias, const Tensor& x, const Tensor& y) {
  const Arguments arguments("bias_gelu_forward", stream);
  arguments.tensor("x", x);
  arguments.sized("bias", bias, as_matrix(x).columns);
  arguments.sized("y", y, x.size());
  table_of(stream).bias_gelu_forward(stream, bias, x, y);
}

void attention_forward(Stream& stream, const Tensor& qkv, int heads, const Tensor& y,
                       const Tensor& log_sum_exp, AttentionMath math) {
  check_attention(Arguments("attention_forward", stream), qkv, heads, y, log_sum_exp);
  table_of(stream).attention_forward(stream, qkv, heads, y, log_sum_exp, math);
}

void attention_backward(Stream& stream, const Tensor& qkv, const Tensor& y, const Tensor& y_grad,
                        const Tensor& log_sum_exp, int heads, const Tensor& qkv_grad,
                        AttentionMath math) {
  const Arguments arguments("attention_backward", stream);
  check_attention(arguments, qkv, heads, y, log_sum_exp);
  arguments.sized("y_grad", y_grad, y.size());
  arguments.sized("qkv_grad", qkv_grad, qkv.size());
  table_of(stream).attention_backward(stream, qkv, y, y_grad, log_sum_exp, heads, qkv_grad, math);
}

void embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, const Tensor& y) {
  const DType type = is_half(token_table.dtype()) ? token_table.dtype() : DType::f32;
  check_embedding(Arguments("embedding_forward", stream), tokens, token_table, position_table, y,
                  type);
  table_of(stream).embedding_forward(stream, tokens, token_table, position_table, y);
}

void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& y_grad,
                        const Tensor& token_grad, bool add_token, const Tensor& position_grad,
                        bool add_position) {
  check_embedding(Arguments("embedding_backward", stream), tokens, token_grad, position_grad,
                  y_grad, DType::f32);
  table_of(stream).embedding_backward(stream, tokens, y_grad, token_grad, add_token, position_grad,
                                      add_position);
}

void cross_entropy(Stream& stream, const Tensor& logits_to_gradient, const Tensor& targets,
                   CrossEntropyOptions options, LossSums* sums) {
  check_cross_entropy(Arguments("cross_entropy", stream), logits_to_gradient, targets, options,
                      sums);
  table_of(stream).cross_entropy(stream, logits_to_gradient, targets, options, sums);
}

void cross_entropy_loss(Stream& stream, const Tensor& logits, const Tensor& targets,
                        CrossEntropyOptions options, LossSums* sums) {
  check_cross_entropy(Arguments("cross_entropy_loss", stream), logits, targets, options, sums);
  table_of(stream).cross_entropy_loss(stream, logits, targets, options, sums);
}

void add(Stream& stream, const Tensor& x, const Tensor& y) {
  const Arguments arguments("add", stream);
  arguments.tensor("x", x);
  arguments.sized("y", y, x.size());
  table_of(stream).add(stream, x, y);
}

void fill_zero(Stream& stream, const Tensor& x) {
  Arguments("fill_zero", stream).tensor("x", x, x.dtype());
  table_of(stream).fill_zero(stream, x);
}

void copy(Stream& stream, const Tensor& x, const Tensor& y) {
  const Arguments arguments("copy", stream);
  arguments.tensor("x", x, x.dtype());
  arguments.sized("y", y, x.size(), x.dtype());
  table_of(stream).copy(stream, x, y);
}

void convert(Stream& stream, const Tensor& x, const Tensor& y) {
  const Arguments arguments("convert", stream);
  arguments.tensor("x", x, x.dtype());
  arguments.sized("y", y, x.size(), y.dtype());
  const bool possible = x.dtype() == y.dtype() || (x.dtype() == DType::f32 && is_half(y.dtype())) ||
                        (is_half(x.dtype()) && y.dtype() == DType::f32);
  arguments.require(possible, "no conversion between these types",
                    "one of the two is f32, the other f32, bf16 or f16");
  table_of(stream).convert(stream, x, y);
}

void round(Stream& stream, const Tensor& x, DType type) {
  const Arguments arguments("round", stream);
  arguments.tensor("x", x);
  arguments.require(is_weight_type(type), "no rounding to this type", "round to f32, bf16 or f16");
  table_of(stream).round(stream, x, type);
}

void add_scaled(Stream& stream, float factor, const Tensor& x, const Tensor& y) {
  const Arguments arguments("add_scaled", stream);
  arguments.tensor("x", x);
  arguments.sized("y", y, x.size());
  table_of(stream).add_scaled(stream, factor, x, y);
}

void adamw(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v,
           AdamWStep step) {
  check_moments(Arguments("adamw", stream), w, g, m, v, step);
  table_of(stream).adamw(stream, w, g, m, v, step);
}

void lamb_direction(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m,
                    const Tensor& v, AdamWStep step) {
  check_moments(Arguments("lamb_direction", stream), w, g, m, v, step);
  table_of(stream).lamb_direction(stream, w, g, m, v, step);
}

void sgd(Stream& stream, const Tensor& w, const Tensor& g, const Tensor& buffer, SgdStep step) {
  const Arguments arguments("sgd", stream);
  arguments.tensor("w", w);
  arguments.sized("g", g, w.size());
  arguments.require(step.t >= 1, "t is below 1", "t counts updates, the one asked for included");
  arguments.require(!step.nesterov || step.momentum > 0.0F, "Nesterov without momentum",
                    "set a momentum above 0, or nesterov = false");
  if (step.momentum != 0.0F) arguments.sized("buffer", buffer, w.size());
  table_of(stream).sgd(stream, w, g, buffer, step);
}

void block_square_sums(Stream& stream, const Tensor& x, std::int64_t block, double* sums) {
  const Arguments arguments("block_square_sums", stream);
  arguments.tensor("x", x);
  arguments.require(block > 0, "a block has no elements",
                    "give the elements of a block, 1 or more");
  arguments.require(sums != nullptr || x.size() == 0, "sums is null",
                    "give room for one sum a block");
  table_of(stream).block_square_sums(stream, x, block, sums);
}

std::vector<std::string> notes(Stream& stream) {
  if (stream.device().kind == DeviceKind::cpu) return {};
  return cuda_notes(stream);
}

}  // namespace lockstep::kernels
