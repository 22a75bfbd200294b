// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/runtime/module.h"

/// The layers of a transformer.
///
/// Shapes: activations are [B, T, C] (or any [..., C] where a layer looks at rows alone), f32. In
/// bf16 and f16 the matrices have that type, and what a matrix product reads is rounded to it;
/// sums, vectors (biases, norms) and all else stay f32. forward() returns memory of the layer,
/// valid until its next forward. backward() takes the gradient of the output and writes that of the
/// input where the caller wants it: `input_grad.add` adds to what is there.
namespace lockstep::nn {

/// y = (x − mean) / √(variance + epsilon) · weight + bias over the last dimension.
/// Parameters: NAME.weight [C], NAME.bias [C].
class LayerNorm final : public Module {
 public:
  LayerNorm(Stream& stream, const std::string& name, std::int64_t width, float epsilon = 1e-5F);
  Tensor forward(const Tensor& x);  // kept until backward
  void backward(const Tensor& y_grad, const GradientSlot& x_grad);
  void visit(const std::function<void(Parameter&)>& visitor) override;

 private:
  Stream* stream_;
  float epsilon_;
  Parameter weight_;
  Parameter bias_;
  Tensor x_;
  Buffer y_;
  Buffer mean_;  // [N]
  Buffer rstd_;  // [N]
};

/// What the layers of one model share: the type of its matrices, and memory for what lives only
/// within the pass of one layer. Layers run one after another.
struct Workspace {
  explicit Workspace(Device device, DType matrix_type = DType::f32)
      : type(matrix_type),
        wide(device),
        narrow(device),
        norm(device),
        rounded(device, matrix_type) {}
  DType type;      // f32, bf16 or f16
  Buffer wide;     // [B, T, max(3C, ffn)], f32
  Buffer narrow;   // [B, T, C], f32
  Buffer norm;     // [B, T, C], f32
  Buffer rounded;  // a gradient in `type`
};

/// `x` f32 as a matrix product reads it: itself, or rounded to the type of `memory`.
Tensor operand(Stream& stream, const Tensor& x, Buffer& memory);

/// Who adds the bias in forward. The layer owns it in both cases and computes its gradient.
enum class BiasAdd : std::uint8_t {
  here,
  caller,  // who fuses it with what follows
};

/// y = x · weight + bias. Parameters: NAME.weight [in, out] (the layout of Hugging Face's Conv1D),
/// NAME.bias [out].
class Linear final : public Module {
 public:
  Linear(Stream& stream, Workspace& workspace, const std::string& name, std::int64_t in,
         std::int64_t out, BiasAdd bias_add = BiasAdd::here);
  Tensor forward(const Tensor& x);  // [..., in] → [..., out]; x is kept until backward
  void backward(const Tensor& y_grad, const GradientSlot& x_grad);
  void visit(const std::function<void(Parameter&)>& visitor) override;
  const Parameter& bias() const noexcept { return bias_; }

 private:
  Stream* stream_;
  Workspace* workspace_;
  BiasAdd bias_add_;
  Parameter weight_;
  Parameter bias_;
  Tensor x_;  // as the product read it
  Buffer rounded_x_;
  Buffer y_;
};

/// Causal multi-head self-attention. Parameters: NAME.c_attn.{weight [C, 3C], bias} and
/// NAME.c_proj.{weight [C, C], bias}.
class Attention final : public Module {
 public:
  /// Throws ConfigError unless `heads` divides `hidden`.
  Attention(Stream& stream, Workspace& workspace, const std::string& name, std::int64_t hidden,
            int heads);
  Tensor forward(const Tensor& x);  // [B, T, C] → [B, T, C]
  void backward(const Tensor& y_grad, const GradientSlot& x_grad);
  void visit(const std::function<void(Parameter&)>& visitor) override;

 private:
  Stream* stream_;
  Workspace* workspace_;
  int heads_;
  Linear c_attn_;
  Linear c_proj_;
  Tensor qkv_;          // [B, T, 3C], memory of c_attn_
  Buffer context_;      // [B, T, C], before the projection
  Buffer log_sum_exp_;  // [B, heads, T]
};

/// c_proj(gelu(c_fc(x))). Parameters: NAME.c_fc.{weight [C, ffn], bias} and
/// NAME.c_proj.{weight [ffn, C], bias}.
class Mlp final : public Module {
 public:
  Mlp(Stream& stream, Workspace& workspace, const std::string& name, std::int64_t hidden,
      std::int64_t ffn);
  Tensor forward(const Tensor& x);  // [..., C] → [..., C]
  void backward(const Tensor& y_grad, const GradientSlot& x_grad);
  void visit(const std::function<void(Parameter&)>& visitor) override;

 private:
  Stream* stream_;
  Workspace* workspace_;
  Linear c_fc_;
  Linear c_proj_;
  Tensor before_gelu_;  // [..., ffn], memory of c_fc_
  Buffer after_gelu_;
};

/// One layer of the transformer: h = x + attn(ln_1(x)); y = h + mlp(ln_2(h)).
class Block final : public Module {
 public:
  Block(Stream& stream, Workspace& workspace, const std::string& name, std::int64_t hidden,
        int heads, std::int64_t ffn, float epsilon);
  Tensor forward(const Tensor& x);  // [B, T, C] → [B, T, C]
  /// `grad` [B, T, C] holds the gradient of the output and becomes that of the input: most of it
  /// passes through the residual path unchanged.
  void backward(const Tensor& grad);
  void visit(const std::function<void(Parameter&)>& visitor) override;

 private:
  Stream* stream_;
  Workspace* workspace_;
  LayerNorm ln_1_;
  Attention attn_;
  LayerNorm ln_2_;
  Mlp mlp_;
};

}  // namespace lockstep::nn
