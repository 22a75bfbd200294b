// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/attention_choice.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/cuda/attention.h"
#include "core/cuda/device.h"
#include "core/cuda/kernels.h"
#include "lockstep/core/copy.h"
#include "lockstep/core/error.h"

namespace lockstep::cuda {
namespace {

constexpr const char* kVariable = "LOCKSTEP_CUDA_ATTENTION";
// A plan may be compiled for a shape, on a machine that others use too.
constexpr std::chrono::minutes kTrialLimit{2};
constexpr std::int64_t kTriedLengths = 64;

std::string to_string(const AttentionShape& shape) {
  return "[B " + std::to_string(shape.batch) + ", T " + std::to_string(shape.length) + ", " +
         std::to_string(shape.heads) + " heads of " + std::to_string(shape.width) + "]";
}

// Even in (−1, 1) by the index alone (the finaliser of splitmix64, Steele et al. 2014).
Tensor even_numbers(const Shape& shape, std::uint64_t seed) {
  Tensor numbers(Device{}, shape, DType::f32);
  auto* const values = numbers.as<float>();
  for (std::int64_t i = 0; i < numbers.size(); ++i) {
    std::uint64_t z = (static_cast<std::uint64_t>(i) + (seed << 40U)) * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    values[i] = static_cast<float>(z >> 40U) * 0x1p-23F - 1.0F;
  }
  return numbers;
}

struct Results {
  Tensor y;
  Tensor log_sum_exp;
  Tensor qkv_grad;
};

Results on_host(const Results& results) {
  return {.y = lockstep::on_host(results.y),
          .log_sum_exp = lockstep::on_host(results.log_sum_exp),
          .qkv_grad = lockstep::on_host(results.qkv_grad)};
}

bool same_bits(const Tensor& one, const Tensor& other) {
  return std::memcmp(one.data(), other.data(), one.bytes()) == 0;
}

// What disagrees, for people; empty where nothing does. Both f32, on the host.
std::string disagreement(const char* what, const Tensor& got, const Tensor& wanted) {
  double difference = 0.0;
  double size = 0.0;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double one = got.as<float>()[i];
    const double other = wanted.as<float>()[i];
    difference += (one - other) * (one - other);
    size += other * other;
  }
  // So that a NaN is one too.
  if (difference <= kAttentionTolerance * kAttentionTolerance * size) return {};
  char text[96];
  std::snprintf(text, sizeof text, "%s is off by %.2g of its size, more than %.2g", what,
                std::sqrt(difference / size), kAttentionTolerance);
  return text;
}

// Both kinds of kernels on the same inputs.
class Trial {
 public:
  Trial(Stream& stream, const AttentionShape& shape)
      : stream_(stream),
        shape_(shape),
        qkv_(input({shape.batch, shape.length, 3 * columns()}, 1)),
        y_grad_(input({shape.batch, shape.length, columns()}, 2)) {}

  Results by(FusedAttention& library) {
    const Results results = outputs();
    kernels::cuda::attention_forward_by(library, stream_, qkv_, heads(), results.y,
                                        results.log_sum_exp);
    kernels::cuda::attention_backward_by(library, stream_, qkv_, results.y, y_grad_,
                                         results.log_sum_exp, heads(), results.qkv_grad);
    settle();
    return on_host(results);
  }

  Results by_own_kernels() {
    constexpr auto math = kernels::AttentionMath::bf16;
    const Results results = outputs();
    kernels::cuda::own_attention_forward(stream_, qkv_, heads(), results.y, results.log_sum_exp,
                                         math);
    kernels::cuda::own_attention_backward(stream_, qkv_, results.y, y_grad_, results.log_sum_exp,
                                          heads(), results.qkv_grad, math);
    settle();
    return on_host(results);
  }

 private:
  std::int64_t columns() const { return shape_.heads * shape_.width; }
  int heads() const { return static_cast<int>(shape_.heads); }

  // Scores between about −2 and 2, so that most keys count.
  Tensor input(const Shape& shape, std::uint64_t seed) {
    const Tensor host = even_numbers(shape, seed);
    Tensor device(stream_.device(), shape, DType::f32);
    settle();  // its memory may still be used
    copy_now(host, device);
    return device;
  }

  Results outputs() const {
    const Device device = stream_.device();
    return {.y = Tensor(device, {shape_.batch, shape_.length, columns()}, DType::f32),
            .log_sum_exp = Tensor(device, {shape_.batch, shape_.heads, shape_.length}, DType::f32),
            .qkv_grad = Tensor(device, {shape_.batch, shape_.length, 3 * columns()}, DType::f32)};
  }

  void settle() {
    if (stream_.record().wait_for(kTrialLimit)) return;
    throw DeviceError("the stream stood still for two minutes", "see `nvidia-smi`");
  }

  Stream& stream_;
  AttentionShape shape_;
  Tensor qkv_;
  Tensor y_grad_;
};

}  // namespace

AttentionWish attention_wish() {
  const char* const set = std::getenv(kVariable);
  const std::string_view word = set == nullptr ? "auto" : set;
  if (word == "auto") return AttentionWish::automatic;
  if (word == "own") return AttentionWish::own;
  if (word == "cudnn") return AttentionWish::cudnn;
  throw ConfigError(std::string(kVariable) + " = " + std::string(word) + " is unknown",
                    "set it to auto, own or cudnn");
}

std::string attention_library() {
  if (attention_wish() == AttentionWish::own) return "own";
  const FoundAttention found = find_cudnn();
  return found.name.empty() ? "own" : found.name;
}

AttentionChoice::AttentionChoice(AttentionWish wish, Open open)
    : wish_(wish), open_(std::move(open)) {}

FusedAttention* AttentionChoice::library_for(Stream& stream, const AttentionShape& shape) {
  if (wish_ == AttentionWish::own || shape.length % kTriedLengths != 0) return nullptr;
  const std::lock_guard lock(mutex_);
  auto decided = decided_.find(shape);
  if (decided == decided_.end()) {
    decided = decided_.emplace(shape, why_not(stream, shape)).first;
  }
  if (decided->second.empty()) return library_.get();
  if (wish_ == AttentionWish::automatic) return nullptr;
  throw DeviceError("attention by cuDNN: " + decided->second,
                    std::string(kVariable) + " = auto uses our own kernels instead");
}

std::vector<std::string> AttentionChoice::take_notes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

std::string AttentionChoice::why_not(Stream& stream, const AttentionShape& shape) {
  if (!is_opened_) {
    is_opened_ = true;
    try {
      library_ = open_(stream.device());
    } catch (const DeviceError& error) {
      no_library_ = error.what();
      notes_.push_back("attention by our own kernels: " + no_library_);
    }
  }
  if (!library_) return no_library_;
  std::string why;
  try {
    Trial trial(stream, shape);
    const Results first = trial.by(*library_);
    const Results again = trial.by(*library_);
    const Results own = trial.by_own_kernels();
    if (!same_bits(first.y, again.y) || !same_bits(first.log_sum_exp, again.log_sum_exp) ||
        !same_bits(first.qkv_grad, again.qkv_grad)) {
      why = "a second run has other bits";
    }
    if (why.empty()) why = disagreement("y", first.y, own.y);
    if (why.empty()) why = disagreement("log_sum_exp", first.log_sum_exp, own.log_sum_exp);
    if (why.empty()) why = disagreement("qkv_grad", first.qkv_grad, own.qkv_grad);
  } catch (const DeviceError& error) {
    why = error.what();
  }
  if (why.empty()) return {};
  why = to_string(shape) + ": " + why;
  notes_.push_back("attention by our own kernels for " + why);
  return why;
}

}  // namespace lockstep::cuda
