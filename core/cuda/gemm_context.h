// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "lockstep/core/stream.h"
#include "lockstep/core/tensor.h"

namespace lockstep::cuda {

enum class Epilogue : std::uint8_t { none, bias, bias_gelu };

/// What decides about the algorithm of a product c [M, N] = op(a) · op(b), row-major.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool add = false;
  DType type = DType::f32;  // of a and b
  Epilogue epilogue = Epilogue::none;
  bool aligned = false;                                // all its memory, to 16 bytes
  auto operator<=>(const GemmShape&) const = default;  // NOLINT(modernize-use-nullptr): 0 of <=>
};

struct GemmMemory {
  const void* a = nullptr;
  const void* b = nullptr;
  float* c = nullptr;           // the result; gelu of it with bias_gelu
  const float* bias = nullptr;  // [N]
  float* before_gelu = nullptr;
};

/// What the products on one device share: cuBLASLt's handle, the algorithm of each shape seen and
/// each stream's workspace. Calls from any thread.
class GemmContext {
 public:
  /// That of a device, made at first use. It lives as long as the process.
  static GemmContext& of(Device device);
  /// Frees what it holds for a stream that ends; its work must be over.
  static void forget(Device device, void* native_stream);

  /// Queues the product. False, with nothing done, if cuBLASLt has no algorithm for this epilogue;
  /// without one that is a DeviceError, as is every failure.
  bool multiply(Stream& stream, const GemmShape& shape, const GemmMemory& memory);

  explicit GemmContext(Device device);
  ~GemmContext() = delete;  // see of()
  GemmContext(const GemmContext&) = delete;
  GemmContext& operator=(const GemmContext&) = delete;

 private:
  struct Algorithm {
    cublasLtMatmulAlgo_t algorithm;
    std::size_t workspace_bytes;
  };
  class Description;

  std::optional<Algorithm> algorithm_for(const GemmShape& shape, Description& description);
  void* workspace_of(Stream& stream);

  Device device_;
  cublasLtHandle_t handle_ = nullptr;
  std::size_t workspace_bytes_ = 0;
  std::mutex mutex_;  // of what follows
  std::map<GemmShape, std::optional<Algorithm>> algorithms_;
  std::map<void*, Tensor> workspaces_;  // by cudaStream_t: two streams may multiply at once
};

}  // namespace lockstep::cuda
