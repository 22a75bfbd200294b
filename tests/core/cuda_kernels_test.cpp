// SPDX-License-Identifier: Apache-2.0
// The kernels of CUDA against those of the CPU: the same bits where the order of additions is the
// same, else close. Their arrays lie in pinned memory, which both sides reach.
#include <limits>
#include <optional>

#include "core/host_memory.h"
#include "lockstep/core/error.h"
#include "tests/core/cuda_side.h"
#include "tests/core/kernels_support.h"

namespace lockstep {
namespace {

using namespace testing_support;
// tests

// One array of the CPU's call and its copy for the GPU's.
struct Both {
  Tensor cpu;
  Tensor gpu;
};

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no CUDA device";
    gpu_stream_.emplace(kGpu);
  }

  // `offset` elements behind an aligned address.
  static Both both(const Tensor& values, std::size_t offset = 0) {
    const std::size_t size = size_of(values.dtype());
    const auto memory = host_memory(kGpu, values.bytes() + offset * size);
    void* data = static_cast<char*>(memory.get()) + offset * size;
    if (values.bytes() > 0) std::memcpy(data, values.data(), values.bytes());
    return {values, Tensor::borrow(data, values.shape(), values.dtype(), kGpu, memory)};
  }
  static Both random(const Shape& shape, unsigned seed, double scale = 1.0) {
    return both(random_tensor(shape, seed, scale));
  }
  // Positive, as second moments are.
  static Both squares(const Shape& shape, unsigned seed) {
    const Tensor values = random_tensor(shape, seed);
    for (std::int64_t i = 0; i < values.size(); ++i) {
      values.as<float>()[i] *= values.as<float>()[i];
    }
    return both(values);
  }
  static Both empty(const Shape& shape) { return both(nan_tensor(shape)); }
  static Both tokens(const Shape& shape, std::int32_t limit) {
    std::mt19937 engine(5);
    std::vector<std::int32_t> values(static_cast<std::size_t>(elements_of(shape)));
    // Half of them few, so that some occur often.
    for (auto& value : values) {
      value = static_cast<std::int32_t>(engine() % static_cast<unsigned>(engine() % 2 ? limit : 3));
    }
    return both(indices_of(shape, values));
  }

  Stream& gpu() { return *gpu_stream_; }
  void finish() {
    cpu_.synchronize();
    gpu().synchronize();
  }

  static void expect_bits(const Both& array, const char* what) {
    if (!cpu_fuses() && array.cpu.dtype() == DType::f32) return expect_near(array, 1e-6, what);
    const auto* wanted = static_cast<const unsigned char*>(array.cpu.data());
    const auto* actual = static_cast<const unsigned char*>(array.gpu.data());
    for (std::size_t i = 0; i < array.cpu.bytes(); ++i) {
      ASSERT_EQ(actual[i], wanted[i]) << what << ": byte " << i << " of " << array.cpu.bytes();
    }
  }
  static void expect_near(const Both& array, double tolerance, const char* what) {
    expect_close(array.gpu, values_of(array.cpu), tolerance, what);
  }

  Stream cpu_{Device{}};

 private:
  std::optional<Stream> gpu_stream_;
};

const std::vector<std::int64_t> kSizes = {1, 3, 4, 1027, 5000};

TEST_F(CudaKernels, AddAndCopyAndClearWithTheBitsOfTheCpu) {
  for (const std::int64_t n : kSizes) {
    for (const std::size_t offset : {0U, 1U}) {
      const Both x = both(random_tensor({n}, 1), offset);
      const Both y = both(random_tensor({n}, 2), offset);
      kernels::add(cpu_, x.cpu, y.cpu);
      gpu_kernels::add(gpu(), x.gpu, y.gpu);
      kernels::add_scaled(cpu_, 0.3F, x.cpu, y.cpu);
      gpu_kernels::add_scaled(gpu(), 0.3F, x.gpu, y.gpu);
      const Both z = both(nan_tensor({n}), 1 - offset);
      kernels::copy(cpu_, y.cpu, z.cpu);
      gpu_kernels::copy(gpu(), y.gpu, z.gpu);
      kernels::fill_zero(cpu_, x.cpu);
      gpu_kernels::fill_zero(gpu(), x.gpu);
      finish();
      expect_bits(y, "y");
      expect_bits(z, "z");
      expect_bits(x, "x");
    }
  }
}

TEST_F(CudaKernels, ConvertAndRoundWithTheBitsOfTheCpu) {
  for (const std::int64_t n : kSizes) {
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      const Both x = random({n}, 3, 300.0);
      const Both narrow = both(Tensor::zeros(Device{}, {n}, type));
      const Both wide = empty({n});
      kernels::convert(cpu_, x.cpu, narrow.cpu);
      gpu_kernels::convert(gpu(), x.gpu, narrow.gpu);
      kernels::convert(cpu_, narrow.cpu, wide.cpu);
      gpu_kernels::convert(gpu(), narrow.gpu, wide.gpu);
      kernels::round(cpu_, x.cpu, type);
      gpu_kernels::round(gpu(), x.gpu, type);
      finish();
      expect_bits(narrow, "narrow");
      expect_bits(wide, "wide");
      expect_bits(x, "rounded");
    }
  }
}

TEST_F(CudaKernels, AddBiasesAndSumColumnsWithTheBitsOfTheCpu) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {5, 7}, {200, 132}, {67, 1030}}) {
    const Both y = random({rows, columns}, 4);
    const Both bias = random({columns}, 5);
    kernels::add_bias(cpu_, bias.cpu, y.cpu);
    gpu_kernels::add_bias(gpu(), bias.gpu, y.gpu);
    for (const bool add : {true, false}) {
      const Both sums = random({columns}, 6);
      kernels::bias_backward(cpu_, y.cpu, sums.cpu, add);
      gpu_kernels::bias_backward(gpu(), y.gpu, sums.gpu, add);
      finish();
      expect_bits(sums, "sums");
    }
    expect_bits(y, "y");
  }
}

TEST_F(CudaKernels, ComputeGeluWithTheBitsOfTheCpu) {
  for (const std::int64_t columns : {7, 128}) {
    const Both x = random({9, columns}, 7, 6.0);
    const Both bias = random({columns}, 8);
    const Both y = empty({9, columns});
    const Both z = empty({9, columns});
    const Both grad = random({9, columns}, 9);
    kernels::gelu_forward(cpu_, x.cpu, y.cpu);
    gpu_kernels::gelu_forward(gpu(), x.gpu, y.gpu);
    kernels::bias_gelu_forward(cpu_, bias.cpu, x.cpu, z.cpu);
    gpu_kernels::bias_gelu_forward(gpu(), bias.gpu, x.gpu, z.gpu);
    kernels::gelu_backward(cpu_, x.cpu, grad.cpu, grad.cpu);
    gpu_kernels::gelu_backward(gpu(), x.gpu, grad.gpu, grad.gpu);
    finish();
    expect_bits(x, "x");
    expect_bits(y, "y");
    expect_bits(z, "z");
    expect_bits(grad, "grad");
  }
}

TEST_F(CudaKernels, NormaliseLayersCloseToTheCpu) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 7}, {70, 96}, {130, 768}}) {
    for (const bool add : {false, true}) {
      const Both x = random({rows, columns}, 10, 3.0);
      const Both weight = random({columns}, 11);
      const Both bias = random({columns}, 12);
      const Both y = empty({rows, columns});
      const Both mean = empty({rows});
      const Both rstd = empty({rows});
      kernels::layer_norm_forward(cpu_, x.cpu, weight.cpu, bias.cpu, 1e-5F, y.cpu, mean.cpu,
                                  rstd.cpu);
      gpu_kernels::layer_norm_forward(gpu(), x.gpu, weight.gpu, bias.gpu, 1e-5F, y.gpu, mean.gpu,
                                      rstd.gpu);
      finish();
      expect_near(y, 2e-6, "y");
      expect_near(mean, 1e-6, "mean");
      expect_near(rstd, 2e-6, "rstd");
      const Both dy = random({rows, columns}, 13);
      const Both dx = random({rows, columns}, 14);
      const Both dweight = random({columns}, 15);
      const Both dbias = random({columns}, 16);
      kernels::layer_norm_backward(cpu_, dy.cpu, x.cpu, weight.cpu, mean.cpu, rstd.cpu,
                                   {dx.cpu, dweight.cpu, dbias.cpu, add, add});
      gpu_kernels::layer_norm_backward(gpu(), dy.gpu, x.gpu, weight.gpu, mean.gpu, rstd.gpu,
                                       {dx.gpu, dweight.gpu, dbias.gpu, add, add});
      finish();
      expect_near(dx, 3e-6, "dx");
      expect_near(dweight, 3e-6, "dweight");
      expect_bits(dbias, "dbias");
    }
  }
}

TEST_F(CudaKernels, EmbedWithTheBitsOfTheCpu) {
  for (const auto& [batch, length, columns] :
       std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {3, 11, 7}, {4, 32, 132}}) {
    const Both ids = tokens({batch, length}, 50);
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      const Both table = both(Tensor(Device{}, {50, columns}, type));
      const Both places = both(Tensor(Device{}, {length + 2, columns}, type));
      for (const auto& [to, seed] : {std::pair{&table, 17U}, {&places, 18U}}) {
        const Tensor values = random_tensor(to->cpu.shape(), seed);
        kernels::convert_elements(values.data(), DType::f32, to->cpu.data(), type,
                                  count_of(values));
        std::memcpy(to->gpu.data(), to->cpu.data(), to->cpu.bytes());
      }
      const Both y = empty({batch, length, columns});
      kernels::embedding_forward(cpu_, ids.cpu, table.cpu, places.cpu, y.cpu);
      gpu_kernels::embedding_forward(gpu(), ids.gpu, table.gpu, places.gpu, y.gpu);
      finish();
      expect_bits(y, "y");
    }
    for (const bool add : {false, true}) {
      const Both dy = random({batch, length, columns}, 19);
      const Both dtable = random({50, columns}, 20);
      const Both dplaces = random({length + 2, columns}, 21);
      kernels::embedding_backward(cpu_, ids.cpu, dy.cpu, dtable.cpu, add, dplaces.cpu, !add);
      gpu_kernels::embedding_backward(gpu(), ids.gpu, dy.gpu, dtable.gpu, add, dplaces.gpu, !add);
      finish();
      expect_bits(dtable, "dtable");
      expect_bits(dplaces, "dplaces");
    }
  }
}

class CudaCrossEntropy : public CudaKernels {
 protected:
  // Sums of the GPU's call, in memory that it reaches.
  const std::shared_ptr<void> memory_ = host_memory(kGpu, sizeof(kernels::LossSums));
  kernels::LossSums* gpu_sums() { return static_cast<kernels::LossSums*>(memory_.get()); }
};

TEST_F(CudaCrossEntropy, IsCloseToTheCpuWithPaddingSmoothingAndIgnoredTargets) {
  for (const auto& [rows, vocabulary, padded] : std::vector<std::array<std::int64_t, 3>>{
           {0, 3, 4}, {1, 1, 1}, {5, 17, 20}, {12, 97, 97}, {2, 50257, 50304}}) {
    for (const float smoothing : {0.0F, 0.1F}) {
      const Both logits = random({rows, padded}, 22, 8.0);
      const Both targets = tokens({rows}, static_cast<std::int32_t>(vocabulary));
      for (std::int64_t i = 0; i < rows; ++i) {
        std::int32_t& target = targets.cpu.as<std::int32_t>()[i];
        target = i % 4 == 1 ? kernels::kIgnoredTarget
                            : std::min(target, static_cast<std::int32_t>(vocabulary - 1));
        targets.gpu.as<std::int32_t>()[i] = target;
      }
      const Both kept = both(logits.cpu);
      const kernels::CrossEntropyOptions options = {
          .vocabulary = vocabulary, .smoothing = smoothing, .gradient_scale = 4.0F};
      kernels::LossSums sums;
      gpu_kernels::cross_entropy_loss(gpu(), kept.gpu, targets.gpu, options, gpu_sums());
      gpu().synchronize();
      const kernels::LossSums loss_alone = *gpu_sums();
      kernels::cross_entropy(cpu_, logits.cpu, targets.cpu, options, &sums);
      gpu_kernels::cross_entropy(gpu(), logits.gpu, targets.gpu, options, gpu_sums());
      finish();
      EXPECT_NEAR(gpu_sums()->loss, sums.loss, 1e-6 * std::max(1.0, sums.loss));
      EXPECT_EQ(gpu_sums()->tokens, sums.tokens);
      EXPECT_EQ(gpu_sums()->non_finite, sums.non_finite);
      EXPECT_EQ(loss_alone.loss, gpu_sums()->loss);
      EXPECT_EQ(loss_alone.tokens, sums.tokens);
      if (rows > 0) expect_near(logits, 1e-6, "gradient");
    }
  }
}

TEST_F(CudaCrossEntropy, CountsLossesThatAreNotFinite) {
  const Both logits = random({4, 40}, 23);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Tensor* x : {&logits.cpu, &logits.gpu}) {
    x->as<float>()[3] = std::nanf("");
    x->as<float>()[40 + 5] = infinity;
    x->as<float>()[80 + 7] = -infinity;   // no probability: still a loss
    x->as<float>()[120 + 2] = -infinity;  // of the target itself
  }
  const Both targets = both(indices_of({4}, {1, 2, 2, 2}));
  kernels::LossSums sums;
  kernels::cross_entropy(cpu_, logits.cpu, targets.cpu, {.vocabulary = 37}, &sums);
  gpu_kernels::cross_entropy(gpu(), logits.gpu, targets.gpu, {.vocabulary = 37}, gpu_sums());
  finish();
  EXPECT_EQ(sums.non_finite, 3);
  EXPECT_EQ(gpu_sums()->non_finite, 3);
}

TEST_F(CudaCrossEntropy, NamesTheFirstBadTargetAndLeavesAllAsItWas) {
  const Both logits = random({3, 8}, 24);
  const Both targets = both(indices_of({3}, {kernels::kIgnoredTarget, 8, -1}));
  gpu_sums()->tokens = 77;
  gpu_kernels::cross_entropy(gpu(), logits.gpu, targets.gpu, {.vocabulary = 8}, gpu_sums());
  try {
    gpu().synchronize();
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("target 8 in row 1"), std::string::npos)
        << error.what();
  }
  expect_bits(logits, "logits");
  EXPECT_EQ(gpu_sums()->tokens, 77);
}

TEST_F(CudaKernels, NameTheFirstTokenOutsideTheTableAndLeaveAllAsItWas) {
  const Both ids = both(indices_of({2, 3}, {0, 1, 2, 3, 9, -1}));
  const Both dy = random({2, 3, 8}, 25);
  const Both dtable = random({4, 8}, 26);
  const Both dplaces = random({3, 8}, 27);
  gpu_kernels::embedding_backward(gpu(), ids.gpu, dy.gpu, dtable.gpu, false, dplaces.gpu, false);
  try {
    gpu().synchronize();
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("token 9 in row 1, column 1"), std::string::npos)
        << error.what();
  }
  expect_bits(dtable, "dtable");
  expect_bits(dplaces, "dplaces");
}

TEST_F(CudaKernels, UpdateWeightsWithTheBitsOfTheCpu) {
  const auto gate_memory = host_memory(kGpu, sizeof(kernels::UpdateGate));
  auto* gate = static_cast<kernels::UpdateGate*>(gate_memory.get());
  for (const bool gated : {false, true}) {
    for (const bool open : {false, true}) {
      *gate = {.clip = 0.5F, .open = open};
      const kernels::UpdateGate* used = gated ? gate : nullptr;
      const std::int64_t n = 1030;
      const Both w = random({n}, 28);
      const Both g = random({n}, 29, 20.0);
      const Both m = random({n}, 30);
      const Both v = squares({n}, 31);
      const kernels::AdamWStep step = {.learning_rate = 3e-3F,
                                       .weight_decay = 0.1F,
                                       .scale = 0.2F,
                                       .clip = 0.7F,
                                       .t = 3,
                                       .gate = used};
      kernels::adamw(cpu_, w.cpu, g.cpu, m.cpu, v.cpu, step);
      gpu_kernels::adamw(gpu(), w.gpu, g.gpu, m.gpu, v.gpu, step);
      for (const float momentum : {0.0F, 0.9F}) {
        const kernels::SgdStep sgd = {.learning_rate = 0.1F,
                                      .momentum = momentum,
                                      .weight_decay = 0.01F,
                                      .scale = 0.2F,
                                      .clip = 0.7F,
                                      .nesterov = momentum > 0.0F,
                                      .t = 2,
                                      .gate = used};
        kernels::sgd(cpu_, w.cpu, g.cpu, m.cpu, sgd);
        gpu_kernels::sgd(gpu(), w.gpu, g.gpu, m.gpu, sgd);
      }
      kernels::lamb_direction(cpu_, w.cpu, g.cpu, m.cpu, v.cpu, step);
      gpu_kernels::lamb_direction(gpu(), w.gpu, g.gpu, m.gpu, v.gpu, step);
      finish();
      expect_bits(w, "w");
      expect_bits(g, "g");
      expect_bits(m, "m");
      expect_bits(v, "v");
    }
  }
}

TEST_F(CudaKernels, SumSquaresOfBlocksCloseToTheCpu) {
  for (const std::int64_t block : {50, 64, 4096}) {
    const Both x = random({5000}, 32);
    const std::size_t count = static_cast<std::size_t>((5000 + block - 1) / block);
    std::vector<double> wanted(count);
    const auto memory = host_memory(kGpu, count * sizeof(double));
    const auto* actual = static_cast<double*>(memory.get());
    kernels::block_square_sums(cpu_, x.cpu, block, wanted.data());
    gpu_kernels::block_square_sums(gpu(), x.gpu, block, static_cast<double*>(memory.get()));
    finish();
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(actual[i], wanted[i], 1e-13 * wanted[i]) << "block " << i << " of " << block;
    }
  }
}

}  // namespace
}  // namespace lockstep
