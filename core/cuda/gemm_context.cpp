// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/gemm_context.h"

#include <cuda_runtime_api.h>

#include <array>
#include <string>

#include "core/cuda/current_device.h"
#include "lockstep/core/error.h"

namespace lockstep::cuda {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;
constexpr std::uintptr_t kWorkspaceAlignment = 256;

const char* hint_for(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "use a smaller model or batch.micro";
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "see `lockstep version` and `nvidia-smi`: cuBLASLt needs a driver of its own release "
             "or a newer one";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "cuBLASLt has no product of these sizes and types: choose multiples of 8 for "
             "model.hidden and model.ffn";
    default:
      return "CUBLASLT_LOG_LEVEL=2 makes cuBLASLt say why; an earlier kernel may be at fault, "
             "which "
             "CUDA_LAUNCH_BLOCKING=1 shows";
  }
}

[[noreturn]] void fail(cublasStatus_t status, const std::string& what) {
  throw DeviceError(what + ": " + cublasLtGetStatusName(status), hint_for(status));
}

void check_status(cublasStatus_t status, const std::string& what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(status, what);
}

std::string to_string(const GemmShape& shape) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  return "gemm [" + number(shape.m) + ", " + number(shape.k) + "] by [" + number(shape.k) + ", " +
         number(shape.n) + "] in " + lockstep::to_string(shape.type);
}

cudaDataType_t data_type(DType type) {
  if (type == DType::bf16) return CUDA_R_16BF;
  return type == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  if (epilogue == Epilogue::bias) return CUBLASLT_EPILOGUE_BIAS;
  return epilogue == Epilogue::bias_gelu ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                         : CUBLASLT_EPILOGUE_DEFAULT;
}

template <typename Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
         const Value& value) {
  check_status(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value),
               "gemm: attribute " + std::to_string(attribute));
}

template <typename Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const Value& value) {
  check_status(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
               "gemm: preference " + std::to_string(attribute));
}

}  // namespace

// cuBLASLt's matrices are column-major: it sees every row-major matrix transposed, and computes
// cᵀ [N, M] = op(b)ᵀ · op(a)ᵀ. So its A is b, its B is a, and their transpositions stay as they
// are. The bias, one a column of c, is one a row of cᵀ, as its epilogue has it.
class GemmContext::Description {
 public:
  Description(const GemmShape& shape, const GemmMemory& memory) {
    const std::string what = to_string(shape);
    check_status(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), what);
    set(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, transposition(shape.transpose_b));
    set(&operation_, CUBLASLT_MATMUL_DESC_TRANSB, transposition(shape.transpose_a));
    if (shape.epilogue != Epilogue::none) {
      set(&operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(shape.epilogue));
      set(&operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory.bias);
    }
    if (shape.epilogue == Epilogue::bias_gelu) {
      set(&operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, memory.before_gelu);
      set(&operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.n);
    }
    const cudaDataType_t type = data_type(shape.type);
    init(left_, type, shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n,
         what);
    init(right_, type, shape.transpose_a ? shape.k : shape.m, shape.transpose_a ? shape.m : shape.k,
         what);
    init(result_, CUDA_R_32F, shape.m, shape.n, what);
  }

  cublasLtMatmulDesc_t operation() { return &operation_; }
  cublasLtMatrixLayout_t left() { return &left_; }
  cublasLtMatrixLayout_t right() { return &right_; }
  cublasLtMatrixLayout_t result() { return &result_; }

 private:
  static cublasOperation_t transposition(bool transposed) {
    return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  }
  // `rows` and `columns` as they lie in memory, row-major.
  static void init(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type, std::int64_t rows,
                   std::int64_t columns, const std::string& what) {
    check_status(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(columns),
                                          static_cast<std::uint64_t>(rows), columns),
                 what);
  }

  cublasLtMatmulDescOpaque_t operation_{};
  cublasLtMatrixLayoutOpaque_t left_{};
  cublasLtMatrixLayoutOpaque_t right_{};
  cublasLtMatrixLayoutOpaque_t result_{};
};

namespace {

// The kernels' signatures have no place for cuBLASLt's state, and a handle is worth a device's
// life: making one takes milliseconds and device memory. It is never destroyed, since at the end of
// the process the CUDA runtime may be gone first.
struct Contexts {
  std::mutex mutex;
  std::map<Device, GemmContext*> of_device;
};
Contexts& contexts() {
  static auto* const all = new Contexts;
  return *all;
}

}  // namespace

GemmContext& GemmContext::of(Device device) {
  Contexts& all = contexts();
  const std::lock_guard lock(all.mutex);
  GemmContext*& context = all.of_device[device];
  if (context == nullptr) context = new GemmContext(device);
  return *context;
}

void GemmContext::forget(Device device, void* native_stream) {
  GemmContext* context = nullptr;
  {
    Contexts& all = contexts();
    const std::lock_guard lock(all.mutex);
    const auto found = all.of_device.find(device);
    if (found == all.of_device.end() || found->second == nullptr) return;
    context = found->second;
  }
  const std::lock_guard lock(context->mutex_);
  context->workspaces_.erase(native_stream);
}

GemmContext::GemmContext(Device device) : device_(device) {
  const std::string what = "cuBLASLt on " + lockstep::to_string(device);
  const CurrentDevice current(device, what);
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index), what);
  // What NVIDIA advises for cuBLAS on Hopper and later, and before.
  workspace_bytes_ = (major >= 9 ? 32 : 8) * kMebibyte;
  check_status(cublasLtCreate(&handle_), what);
}

void* GemmContext::workspace_of(Stream& stream) {
  const std::lock_guard lock(mutex_);
  Tensor& workspace = workspaces_[stream.native()];
  if (!workspace.defined()) {
    workspace = Tensor(device_, {static_cast<std::int64_t>(workspace_bytes_ + kWorkspaceAlignment)},
                       DType::u8);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
  return workspace.as<std::uint8_t>() + (kWorkspaceAlignment - address % kWorkspaceAlignment);
}

std::optional<GemmContext::Algorithm> GemmContext::algorithm_for(const GemmShape& shape,
                                                                 Description& description) {
  const std::lock_guard lock(mutex_);
  if (const auto known = algorithms_.find(shape); known != algorithms_.end()) return known->second;

  cublasLtMatmulPreferenceOpaque_t preference{};
  check_status(cublasLtMatmulPreferenceInit(&preference), to_string(shape));
  set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(workspace_bytes_));
  // Parts of a split sum are added by a kernel of its own in one order, or there are none: sums in
  // place are added as their blocks end.
  set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE) |
          static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  // The default, 256 bytes, is more than a tensor promises.
  const auto of_elements = static_cast<std::uint32_t>(size_of(shape.type));
  const std::uint32_t of_operands = shape.aligned ? 16U : of_elements;
  const std::uint32_t of_result = shape.aligned ? 16U : 4U;
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_operands);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_operands);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_result);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_result);

  std::array<cublasLtMatmulHeuristicResult_t, 4> results{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, description.operation(), description.left(), description.right(),
      description.result(), description.result(), &preference, static_cast<int>(results.size()),
      results.data(), &found);
  std::optional<Algorithm> chosen;
  for (std::size_t i = 0; status == CUBLAS_STATUS_SUCCESS && !chosen; ++i) {
    if (i == static_cast<std::size_t>(found)) break;
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    chosen = {.algorithm = results[i].algo, .workspace_bytes = results[i].workspaceSize};
  }
  const bool refused = status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_NOT_SUPPORTED ||
                       status == CUBLAS_STATUS_INVALID_VALUE;
  if (!chosen && (shape.epilogue == Epilogue::none || !refused)) {
    fail(status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status, to_string(shape));
  }
  algorithms_.emplace(shape, chosen);
  return chosen;
}

bool GemmContext::multiply(Stream& stream, const GemmShape& shape, const GemmMemory& memory) {
  const CurrentDevice current(device_, "gemm");
  Description description(shape, memory);
  const std::optional<Algorithm> chosen = algorithm_for(shape, description);
  if (!chosen) return false;
  void* const workspace = chosen->workspace_bytes > 0 ? workspace_of(stream) : nullptr;
  const float alpha = 1.0F;
  const float beta = shape.add ? 1.0F : 0.0F;
  check_status(
      cublasLtMatmul(handle_, description.operation(), &alpha, memory.b, description.left(),
                     memory.a, description.right(), &beta, memory.c, description.result(), memory.c,
                     description.result(), &chosen->algorithm, workspace, chosen->workspace_bytes,
                     static_cast<cudaStream_t>(stream.native())),
      to_string(shape));
  return true;
}

}  // namespace lockstep::cuda
