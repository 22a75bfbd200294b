// SPDX-License-Identifier: Apache-2.0
// A fake cuBLASLt: products of f32, bf16 and f16 with f32 sums by a plain loop, in the stream's
// order. What it does not know it refuses with CUBLAS_STATUS_NOT_SUPPORTED, as the real one does.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/fakes/cuda/device_view.h"
#include "tests/fakes/cuda/machine.h"
#include "tests/fakes/cuda/matmul.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace fake = lockstep::fake;

struct cublasLtContext {
  int device = 0;
};

namespace {

// The opaque blocks of the header hold ours, so that both ways to make one work.
struct Operation {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  cublasOperation_t transpose_a = CUBLAS_OP_N;
  cublasOperation_t transpose_b = CUBLAS_OP_N;
  cublasLtPointerMode_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1;  // -1: that of D
  std::int32_t aux_type = -1;
  std::int64_t aux_ld = 0;
  void* bias = nullptr;
  void* aux = nullptr;
};
struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;
  std::int64_t batch_stride = 0;
};
struct Preference {
  std::uint64_t workspace = 0;
};
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

constexpr int kAlgorithm = 66;  // the id of the one there is

template <typename Ours, typename Opaque>
Ours& as(Opaque* opaque) {
  return *reinterpret_cast<Ours*>(opaque);
}

template <typename Ours, typename Opaque>
cublasStatus_t create(Opaque** handle, const Ours& value) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new Opaque{};
  new (*handle) Ours(value);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque>
cublasStatus_t destroy(Opaque* handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Field>
cublasStatus_t set(Field& field, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, sizeof field);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Field>
cublasStatus_t get(const Field& field, void* value, std::size_t bytes, std::size_t* written) {
  if (written != nullptr) *written = sizeof field;
  if (bytes == 0) return CUBLAS_STATUS_SUCCESS;
  if (value == nullptr || bytes < sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &field, sizeof field);
  return CUBLAS_STATUS_SUCCESS;
}

bool is_known(cudaDataType_t type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

fake::ElementType element_of(cudaDataType_t type) {
  if (type == CUDA_R_16BF) return fake::ElementType::bf16;
  return type == CUDA_R_16F ? fake::ElementType::f16 : fake::ElementType::f32;
}

fake::Matrix matrix_of(const Layout& layout, const void* data) {
  return {.data = const_cast<void*>(data),
          .type = element_of(layout.type),
          .rows = static_cast<std::size_t>(layout.rows),
          .columns = static_cast<std::size_t>(layout.columns),
          .ld = static_cast<std::size_t>(layout.ld),
          .row_major = layout.order == CUBLASLT_ORDER_ROW};
}

bool is_valid(const Layout& layout) {
  const bool row_major = layout.order == CUBLASLT_ORDER_ROW;
  return layout.rows > 0 && layout.columns > 0 && layout.batch >= 1 &&
         layout.ld >= static_cast<std::int64_t>(row_major ? layout.columns : layout.rows);
}

bool has(const Operation& operation, int part) {
  return (static_cast<int>(operation.epilogue) & part) != 0;
}

// What the real one says to a call of these shapes and types.
cublasStatus_t check(const Operation& op, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& d) {
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (!is_valid(*layout)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_known(layout->type) || layout->batch != a.batch) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (layout->order != CUBLASLT_ORDER_COL && layout->order != CUBLASLT_ORDER_ROW) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  const bool flip_a = op.transpose_a != CUBLAS_OP_N;
  const bool flip_b = op.transpose_b != CUBLAS_OP_N;
  const std::uint64_t m = flip_a ? a.columns : a.rows;
  const std::uint64_t k = flip_a ? a.rows : a.columns;
  const std::uint64_t n = flip_b ? b.rows : b.columns;
  if ((flip_b ? b.columns : b.rows) != k || c.rows != m || c.columns != n || d.rows != m ||
      d.columns != n) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool halves = a.type != CUDA_R_32F;
  const bool types = a.type == b.type && c.type == d.type &&
                     (d.type == CUDA_R_32F || (halves && d.type == a.type));
  const bool compute = op.compute == CUBLAS_COMPUTE_32F ||
                       op.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                       (!halves && op.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  if (!types || !compute || op.scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  switch (op.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      break;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      // The real one wants multiples of 8 here.
      if (op.aux_ld < static_cast<std::int64_t>(m) || op.aux_ld % 8 != 0) {
        return CUBLAS_STATUS_INVALID_VALUE;
      }
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto bias_type = op.bias_type < 0 ? d.type : static_cast<cudaDataType_t>(op.bias_type);
  const auto aux_type = op.aux_type < 0 ? d.type : static_cast<cudaDataType_t>(op.aux_type);
  if (bias_type != d.type || aux_type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool column_major = d.order == CUBLASLT_ORDER_COL;
  if (op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !column_major) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

fake::Product product_of(const Operation& op, const Layout& a, const void* a_data, const Layout& b,
                         const void* b_data, const Layout& c, const void* c_data, const Layout& d,
                         void* d_data) {
  fake::Product product;
  product.a = matrix_of(a, a_data);
  product.b = matrix_of(b, b_data);
  product.c = matrix_of(c, c_data);
  product.d = matrix_of(d, d_data);
  product.transpose_a = op.transpose_a != CUBLAS_OP_N;
  product.transpose_b = op.transpose_b != CUBLAS_OP_N;
  product.gelu = has(op, CUBLASLT_EPILOGUE_GELU);
  if (has(op, CUBLASLT_EPILOGUE_BIAS)) {
    product.bias = {.data = op.bias,
                    .type = product.d.type,
                    .rows = product.d.rows,
                    .columns = 1,
                    .ld = product.d.rows};
  }
  if (has(op, 128)) {
    product.aux = {.data = op.aux,
                   .type = product.d.type,
                   .rows = product.d.rows,
                   .columns = product.d.columns,
                   .ld = static_cast<std::size_t>(op.aux_ld)};
  }
  return product;
}

void check_memory(const char* what, int device, const fake::Matrix& matrix) {
  fake::check_reachable("cublasLtMatmul", what, device, matrix.data, matrix.bytes());
}

fake::Matrix shifted(fake::Matrix matrix, std::int64_t elements) {
  const auto bytes = elements * static_cast<std::int64_t>(fake::size_of(matrix.type));
  if (matrix.data != nullptr) matrix.data = static_cast<unsigned char*>(matrix.data) + bytes;
  return matrix;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (fake::enter(__func__) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{.device = fake::current_device()};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
std::size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_UNKNOWN";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, std::size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (desc == nullptr || size < sizeof(Operation)) return CUBLAS_STATUS_INVALID_VALUE;
  new (desc) Operation{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return create(desc, Operation{.compute = compute, .scale = scale});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy(desc); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  if (desc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& op = as<Operation>(desc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return set(op.compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return set(op.scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return set(op.pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(op.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(op.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(op.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(op.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(op.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(op.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(op.aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return set(op.aux_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return CUBLAS_STATUS_SUCCESS;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t size,
                                                 cudaDataType type, std::uint64_t rows,
                                                 std::uint64_t columns, std::int64_t ld) {
  if (layout == nullptr || size < sizeof(Layout)) return CUBLAS_STATUS_INVALID_VALUE;
  new (layout) Layout{.type = type, .rows = rows, .columns = columns, .ld = ld};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t ld) {
  return create(layout, Layout{.type = type, .rows = rows, .columns = columns, .ld = ld});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t desc,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  if (desc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& layout = as<Layout>(desc);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return set(layout.type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set(layout.order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return set(layout.rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return set(layout.columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return set(layout.ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(layout.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(layout.batch_stride, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     std::size_t size) {
  if (preference == nullptr || size < sizeof(Preference)) return CUBLAS_STATUS_INVALID_VALUE;
  new (preference) Preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, Preference{});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  // The others narrow the choice, and there is one algorithm.
  if (attribute != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return CUBLAS_STATUS_SUCCESS;
  return set(as<Preference>(preference).workspace, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  if (handle == nullptr || op == nullptr || a == nullptr || b == nullptr || c == nullptr ||
      d == nullptr || preference == nullptr || wanted < 1 || results == nullptr ||
      found == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  fake::forbid_on_worker(__func__);
  *found = 0;
  const cublasStatus_t status =
      check(as<Operation>(op), as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  *results = {};
  results->algo.data[0] = kAlgorithm;
  results->state = CUBLAS_STATUS_SUCCESS;
  results->wavesCount = 1.0F;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, std::size_t bytes,
                                                    std::size_t* written) {
  if (algorithm == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const bool id = attribute == CUBLASLT_ALGO_CONFIG_ID;
  return get(id ? static_cast<std::int32_t>(algorithm->data[0]) : std::int32_t{0}, value, bytes,
             written);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op_desc,
                              const void* alpha, const void* a_data, cublasLtMatrixLayout_t a_desc,
                              const void* b_data, cublasLtMatrixLayout_t b_desc, const void* beta,
                              const void* c_data, cublasLtMatrixLayout_t c_desc, void* d_data,
                              cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr || op_desc == nullptr || alpha == nullptr || beta == nullptr ||
      a_desc == nullptr || b_desc == nullptr || c_desc == nullptr || d_desc == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (fake::enter(__func__) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  const auto& op = as<Operation>(op_desc);
  const auto& a = as<Layout>(a_desc);
  const auto& b = as<Layout>(b_desc);
  const auto& c = as<Layout>(c_desc);
  const auto& d = as<Layout>(d_desc);
  if (const cublasStatus_t status = check(op, a, b, c, d); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (op.pointer_mode != CUBLASLT_POINTER_MODE_HOST) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algorithm != nullptr && algorithm->data[0] != kAlgorithm) return CUBLAS_STATUS_INVALID_VALUE;
  const int device = fake::device_of(stream);
  if (device < 0) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (device != handle->device) return CUBLAS_STATUS_ARCH_MISMATCH;

  fake::Product product = product_of(op, a, a_data, b, b_data, c, c_data, d, d_data);
  std::memcpy(&product.alpha, alpha, sizeof product.alpha);
  std::memcpy(&product.beta, beta, sizeof product.beta);
  if (product.gelu && has(op, 128) && op.aux == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (has(op, CUBLASLT_EPILOGUE_BIAS) && op.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  fake::check_reachable("cublasLtMatmul", "workspace", device, workspace, workspace_bytes);
  const auto check_all = [device](const fake::Product& p) {
    check_memory("A", device, p.a);
    check_memory("B", device, p.b);
    if (p.beta != 0.0F) check_memory("C", device, p.c);
    check_memory("D", device, p.d);
    if (p.bias.data != nullptr) check_memory("bias", device, p.bias);
    if (p.aux.data != nullptr) check_memory("aux", device, p.aux);
  };
  for (std::int64_t i = 0; i < d.batch; ++i) {
    fake::Product part = product;
    part.a = shifted(product.a, i * a.batch_stride);
    part.b = shifted(product.b, i * b.batch_stride);
    part.c = shifted(product.c, i * c.batch_stride);
    part.d = shifted(product.d, i * d.batch_stride);
    check_all(part);
    const cudaError_t queued = fake::enqueue(stream, [part, check_all] {
      check_all(part);  // its memory may have been freed by now
      fake::Product viewed = part;
      for (fake::Matrix* matrix :
           {&viewed.a, &viewed.b, &viewed.c, &viewed.d, &viewed.bias, &viewed.aux}) {
        matrix->data = fake::view(matrix->data);
      }
      fake::multiply(viewed);
    });
    if (queued != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  return CUBLAS_STATUS_SUCCESS;
}
