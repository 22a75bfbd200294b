// SPDX-License-Identifier: Apache-2.0
// Whose kernels carry out attention in bf16: a library that agrees with our own, one that does not,
// and none. The library is that of tests/fakes/cuda/cudnn_attention.cpp.
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>

#include "core/cuda/attention.h"
#include "core/cuda/attention_choice.h"
#include "core/cuda/device.h"
#include "core/kernels.h"
#include "lockstep/core/copy.h"
#include "lockstep/core/error.h"
#include "lockstep/core/rng.h"
#include "lockstep/core/stream.h"

namespace lockstep {
namespace {

using cuda::AttentionChoice;
using cuda::AttentionShape;
using cuda::AttentionWish;
using kernels::AttentionMath;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Device kGpu{.kind = DeviceKind::cuda, .index = 0};
constexpr AttentionShape kShape{.batch = 2, .length = 128, .heads = 3, .width = 16};

// A variable of the environment for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

Tensor on_gpu(const Shape& shape, const char* name) {
  Tensor host(Device{}, shape, DType::f32);
  fill_normal({host.as<float>(), static_cast<std::size_t>(host.size())}, 0, 7, name, 1.0);
  Tensor device(kGpu, shape, DType::f32);
  copy_now(host, device);
  return device;
}

struct Results {
  Tensor y;
  Tensor qkv_grad;
};

// Both passes by the kernels of core/kernels.h.
Results run(Stream& stream, AttentionMath math) {
  const std::int64_t columns = kShape.heads * kShape.width;
  const int heads = static_cast<int>(kShape.heads);
  const Tensor qkv = on_gpu({kShape.batch, kShape.length, 3 * columns}, "qkv");
  const Tensor y_grad = on_gpu({kShape.batch, kShape.length, columns}, "y_grad");
  const Tensor y(kGpu, y_grad.shape(), DType::f32);
  const Tensor log_sum_exp(kGpu, {kShape.batch, kShape.heads, kShape.length}, DType::f32);
  const Tensor qkv_grad(kGpu, qkv.shape(), DType::f32);
  kernels::attention_forward(stream, qkv, heads, y, log_sum_exp, math);
  kernels::attention_backward(stream, qkv, y, y_grad, log_sum_exp, heads, qkv_grad, math);
  stream.synchronize();
  return {.y = on_host(y), .qkv_grad = on_host(qkv_grad)};
}

bool same_bits(const Tensor& one, const Tensor& other) {
  return std::memcmp(one.data(), other.data(), one.bytes()) == 0;
}

// How many elements are no bf16.
std::int64_t finer_than_bf16(const Tensor& x) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, x.as<float>() + i, sizeof bits);
    count += (bits & 0xffffU) != 0 ? 1 : 0;
  }
  return count;
}

TEST(CudaAttentionChoice, TakesALibraryThatAgrees) {
  const Variable fake("LOCKSTEP_FAKE_CUDNN", "agrees");
  Stream stream(kGpu);
  AttentionChoice choice(AttentionWish::automatic, cuda::open_cudnn);
  EXPECT_NE(choice.library_for(stream, kShape), nullptr);
  EXPECT_THAT(choice.take_notes(), IsEmpty());
}

TEST(CudaAttentionChoice, OpensTheLibraryOnceAndTriesEachShapeOnce) {
  const Variable fake("LOCKSTEP_FAKE_CUDNN", "wrong");
  Stream stream(kGpu);
  int opened = 0;
  AttentionChoice choice(AttentionWish::automatic, [&](Device device) {
    ++opened;
    return cuda::open_cudnn(device);
  });
  AttentionShape other = kShape;
  other.batch = 1;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(choice.library_for(stream, kShape), nullptr);
    EXPECT_EQ(choice.library_for(stream, other), nullptr);
  }
  EXPECT_EQ(opened, 1);
  EXPECT_THAT(choice.take_notes(),
              ElementsAre(AllOf(HasSubstr("[B 2, T 128, 3 heads of 16]"), HasSubstr("qkv_grad")),
                          HasSubstr("[B 1, T 128, 3 heads of 16]")));
  EXPECT_THAT(choice.take_notes(), IsEmpty());
}

TEST(CudaAttentionChoice, LeavesToOurKernelsWhatChangesOrIsRefused) {
  for (const auto& [behaviour, why] : {std::pair{"changes", "a second run has other bits"},
                                       std::pair{"refuses", "no such plan"}}) {
    const Variable fake("LOCKSTEP_FAKE_CUDNN", behaviour);
    Stream stream(kGpu);
    AttentionChoice choice(AttentionWish::automatic, cuda::open_cudnn);
    EXPECT_EQ(choice.library_for(stream, kShape), nullptr);
    EXPECT_THAT(choice.take_notes(), ElementsAre(HasSubstr(why)));
  }
}

TEST(CudaAttentionChoice, SaysOnceThatThereIsNoLibrary) {
  Stream stream(kGpu);
  AttentionChoice choice(AttentionWish::automatic, cuda::open_cudnn);
  AttentionShape other = kShape;
  other.length = 64;
  EXPECT_EQ(choice.library_for(stream, kShape), nullptr);
  EXPECT_EQ(choice.library_for(stream, other), nullptr);
  EXPECT_THAT(choice.take_notes(), ElementsAre(HasSubstr("libcudnn.so.9 does not open")));
}

TEST(CudaAttentionChoice, TriesNoLengthsOfTextThatGrows) {
  Stream stream(kGpu);
  AttentionChoice choice(AttentionWish::cudnn, cuda::open_cudnn);
  AttentionShape other = kShape;
  for (const std::int64_t length : {1, 63, 65, 127}) {
    other.length = length;
    EXPECT_EQ(choice.library_for(stream, other), nullptr);
  }
  EXPECT_THROW(choice.library_for(stream, kShape), DeviceError);
}

TEST(CudaAttentionChoice, DoesWhatTheVariableSays) {
  EXPECT_EQ(cuda::attention_wish(), AttentionWish::automatic);
  {
    const Variable variable("LOCKSTEP_CUDA_ATTENTION", "own");
    const Variable fake("LOCKSTEP_FAKE_CUDNN", "agrees");
    EXPECT_EQ(cuda::attention_wish(), AttentionWish::own);
    EXPECT_EQ(cuda::attention_library(), "own");
    Stream stream(kGpu);
    AttentionChoice choice(AttentionWish::own, [](Device) {
      ADD_FAILURE() << "opened";
      return std::unique_ptr<cuda::FusedAttention>();
    });
    EXPECT_EQ(choice.library_for(stream, kShape), nullptr);
    EXPECT_THAT(choice.take_notes(), IsEmpty());
  }
  {
    const Variable variable("LOCKSTEP_CUDA_ATTENTION", "cudnn");
    EXPECT_EQ(cuda::attention_wish(), AttentionWish::cudnn);
    EXPECT_EQ(cuda::attention_library(), "own");  // there is none
    Stream stream(kGpu);
    EXPECT_THROW(run(stream, AttentionMath::bf16), DeviceError);
    EXPECT_NO_THROW(run(stream, AttentionMath::f32));
  }
  const Variable variable("LOCKSTEP_CUDA_ATTENTION", "flash");
  EXPECT_THROW(cuda::attention_wish(), ConfigError);
}

// What the kernels of core/kernels.h do with it, on a stream of their own.
TEST(CudaAttentionChoice, IsWhatTheKernelsUse) {
  const auto run_with = [](const char* behaviour, AttentionMath math) {
    const Variable fake("LOCKSTEP_FAKE_CUDNN", behaviour);
    Stream stream(kGpu);
    Results results = run(stream, math);
    const bool is_told = !kernels::notes(stream).empty();
    EXPECT_EQ(is_told, std::string(behaviour) == "wrong");
    return results;
  };
  const Results library = run_with("agrees", AttentionMath::bf16);
  const Results own = run_with("wrong", AttentionMath::bf16);
  // The library's results are bf16, our own f32.
  EXPECT_EQ(finer_than_bf16(library.y), 0);
  EXPECT_EQ(finer_than_bf16(library.qkv_grad), 0);
  EXPECT_GT(finer_than_bf16(own.y), own.y.size() / 2);
  EXPECT_GT(finer_than_bf16(own.qkv_grad), own.qkv_grad.size() / 2);
  const Results again = run_with("agrees", AttentionMath::bf16);
  EXPECT_TRUE(same_bits(library.y, again.y));
  EXPECT_TRUE(same_bits(library.qkv_grad, again.qkv_grad));
  // f32 knows nothing of it.
  const Results f32 = run_with("agrees", AttentionMath::f32);
  EXPECT_GT(finer_than_bf16(f32.y), f32.y.size() / 2);
}

// The tolerance is far from what rounding makes, and far from a mistake.
TEST(CudaAttentionChoice, ToleratesRoundingAndNoMistake) {
  const Variable fake("LOCKSTEP_FAKE_CUDNN", "agrees");
  Stream stream(kGpu);
  const Results library = run(stream, AttentionMath::bf16);
  Stream plain(kGpu);
  const Variable own("LOCKSTEP_FAKE_CUDNN", "");
  const Results wanted = run(plain, AttentionMath::bf16);
  const auto distance = [](const Tensor& one, const Tensor& other) {
    double difference = 0.0;
    double size = 0.0;
    for (std::int64_t i = 0; i < one.size(); ++i) {
      const double b = other.as<float>()[i];
      difference += std::pow(one.as<float>()[i] - b, 2.0);
      size += b * b;
    }
    return std::sqrt(difference / size);
  };
  const double of_y = distance(library.y, wanted.y);
  const double of_gradient = distance(library.qkv_grad, wanted.qkv_grad);
  std::printf("distance of y %.4f, of qkv_grad %.4f\n", of_y, of_gradient);
  EXPECT_GT(of_y, 0.0);
  EXPECT_LT(of_y, cuda::kAttentionTolerance / 3);
  EXPECT_LT(of_gradient, cuda::kAttentionTolerance / 3);
}

}  // namespace
}  // namespace lockstep
