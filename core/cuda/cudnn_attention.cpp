// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN, whose library is opened at run time: NVIDIA's header-only frontend looks up
// what it calls.
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <array>
#include <exception>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/cuda/cudnn_graphs.h"
#include "core/cuda/current_device.h"
#include "core/cuda/fused_attention.h"
#include "lockstep/core/error.h"

// The frontend declares it and takes it as given: it must be open before any call, and stay so,
// since each call's function is looked up once.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace lockstep::cuda {
namespace {

namespace graph = cudnn_frontend::graph;

using Memory = std::unordered_map<std::int64_t, void*>;

// More than a step leaves free as a rule. A backward pass whose bits are the same again holds all
// scores on some GPUs: B · heads · T² · 2 bytes.
constexpr std::int64_t kMostWorkspaceBytes = std::int64_t{1} << 30;
constexpr std::int64_t kBytesOfVector = 16;

FoundAttention open_library() {
  const std::string name = "libcudnn.so." + std::to_string(CUDNN_MAJOR);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {.name = {}, .reason = name + " does not open"};
  cudnn_frontend::cudnn_dlhandle = library;
  try {
    return {.name = "cuDNN " + cudnn_frontend::detail::get_backend_version_string(), .reason = {}};
  } catch (const std::exception& error) {
    return {.name = {}, .reason = name + ": " + error.what()};
  }
}

[[noreturn]] void fail(const std::string& what) {
  throw DeviceError("cuDNN: " + what, "LOCKSTEP_CUDA_ATTENTION=own does without cuDNN");
}

void check(cudnn_frontend::error_t status) {
  if (status.is_bad()) fail(status.get_message());
}

// The frontend throws what the standard library does where a function is missing.
template <typename Call>
auto guarded(const Call& call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

class Handle {
 public:
  Handle() { check_status(cudnn_frontend::detail::create_handle(&handle_), "make a handle"); }
  ~Handle() {
    try {
      static_cast<void>(cudnn_frontend::detail::destroy_handle(handle_));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it is left to the process
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  cudnnHandle_t on(Stream& stream) {
    check_status(
        cudnn_frontend::detail::set_stream(handle_, static_cast<cudaStream_t>(stream.native())),
        "choose the stream");
    return handle_;
  }

 private:
  static void check_status(cudnnStatus_t status, const std::string& what) {
    if (status == CUDNN_STATUS_SUCCESS) return;
    fail(what + ": " + cudnn_frontend::detail::get_error_string(status));
  }

  cudnnHandle_t handle_ = nullptr;
};

struct Plan {
  graph::Graph graph;
  std::int64_t workspace_bytes = 0;
};

// Where the queries, keys and values of [B, T, 3C] begin.
std::array<void*, 3> thirds_of(const Tensor& qkv, const AttentionShape& shape) {
  auto* const first = static_cast<std::byte*>(qkv.data());
  const std::size_t bytes =
      static_cast<std::size_t>(shape.heads * shape.width) * size_of(DType::bf16);
  return {first, first + bytes, first + 2 * bytes};
}

class CudnnAttention final : public FusedAttention {
 public:
  void forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& y,
               const Tensor& log_sum_exp) override {
    const auto [q, k, v] = thirds_of(qkv, shape);
    run(stream, shape, forward_, describe_forward,
        {{kQ, q}, {kK, k}, {kV, v}, {kY, y.data()}, {kLogSumExp, log_sum_exp.data()}});
  }

  void backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& y,
                const Tensor& y_grad, const Tensor& log_sum_exp, const Tensor& qkv_grad) override {
    const auto [q, k, v] = thirds_of(qkv, shape);
    const auto [q_grad, k_grad, v_grad] = thirds_of(qkv_grad, shape);
    run(stream, shape, backward_, describe_backward,
        {{kQ, q},
         {kK, k},
         {kV, v},
         {kY, y.data()},
         {kYGrad, y_grad.data()},
         {kLogSumExp, log_sum_exp.data()},
         {kQGrad, q_grad},
         {kKGrad, k_grad},
         {kVGrad, v_grad}});
  }

 private:
  using Plans = std::map<AttentionShape, std::unique_ptr<Plan>>;
  using Describe = void (*)(graph::Graph&, const AttentionShape&);

  void run(Stream& stream, const AttentionShape& shape, Plans& plans, Describe describe,
           Memory memory) {
    guarded([&] {
      const CurrentDevice current(stream.device(), "cuDNN");
      const cudnnHandle_t handle = handle_.on(stream);
      std::unique_ptr<Plan>& plan = plans[shape];
      if (!plan) plan = make_plan(handle, shape, describe);
      // Given back at once, as other memory that kernels use: what follows comes later.
      const Tensor workspace(stream.device(), {plan->workspace_bytes}, DType::u8);
      check(plan->graph.execute(handle, memory, workspace.data()));
    });
  }

  static std::unique_ptr<Plan> make_plan(cudnnHandle_t handle, const AttentionShape& shape,
                                         Describe describe) {
    if (shape.width * static_cast<std::int64_t>(size_of(DType::bf16)) % kBytesOfVector != 0) {
      fail("heads of " + std::to_string(shape.width) + " columns are no multiple of 8");
    }
    auto plan = std::make_unique<Plan>();
    describe(plan->graph, shape);
    check(plan->graph.build(handle, {cudnn_frontend::HeurMode_t::A}));
    check(plan->graph.get_workspace_size(plan->workspace_bytes));
    if (plan->workspace_bytes > kMostWorkspaceBytes) {
      fail("a workspace of " + std::to_string(plan->workspace_bytes) + " bytes, more than 1 GiB");
    }
    return plan;
  }

  Handle handle_;
  Plans forward_;
  Plans backward_;
};

}  // namespace

FoundAttention find_cudnn() {
  static const FoundAttention found = open_library();
  return found;
}

std::unique_ptr<FusedAttention> open_cudnn(Device device) {
  const FoundAttention found = find_cudnn();
  if (found.name.empty()) {
    throw DeviceError(found.reason, "install cuDNN, or put its folder into LD_LIBRARY_PATH");
  }
  return guarded([&]() -> std::unique_ptr<FusedAttention> {
    const CurrentDevice current(device, "cuDNN on " + to_string(device));
    return std::make_unique<CudnnAttention>();
  });
}

}  // namespace lockstep::cuda
