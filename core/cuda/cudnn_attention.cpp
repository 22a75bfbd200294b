// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN, whose library is opened at run time: NVIDIA's header-only frontend looks up
// what it calls.
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <array>
#include <cmath>
#include <exception>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/cuda/current_device.h"
#include "core/cuda/fused_attention.h"
#include "lockstep/core/error.h"

// The frontend declares it and takes it as given: it must be open before any call, and stay so,
// since each call's function is looked up once.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace lockstep::cuda {
namespace {

namespace graph = cudnn_frontend::graph;

using GraphTensor = std::shared_ptr<graph::Tensor_attributes>;
using Memory = std::unordered_map<std::int64_t, void*>;

// More than a step leaves free as a rule. A backward pass whose bits are the same again holds all
// scores on some GPUs: B · heads · T² · 2 bytes.
constexpr std::int64_t kMostWorkspaceBytes = std::int64_t{1} << 30;
constexpr std::int64_t kBytesOfVector = 16;

// Names of a graph's tensors.
enum Uid : std::int64_t { kQ = 1, kK, kV, kY, kLogSumExp, kYGrad, kQGrad, kKGrad, kVGrad };

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
  ~Handle() { static_cast<void>(cudnn_frontend::detail::destroy_handle(handle_)); }
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

// The arrays of one shape as a graph sees them: [B, heads, T, width], however they lie in memory.
class Layout {
 public:
  Layout(graph::Graph& graph, const AttentionShape& shape) : graph_(graph), shape_(shape) {
    graph.set_io_data_type(cudnn_frontend::DataType_t::BFLOAT16)
        .set_intermediate_data_type(cudnn_frontend::DataType_t::FLOAT)
        .set_compute_data_type(cudnn_frontend::DataType_t::FLOAT);
  }

  // A third of [B, T, 3C]; of y and its gradient, [B, T, C].
  GraphTensor third(Uid uid) { return graph_.tensor(heads_of(uid, 3)); }
  GraphTensor whole(Uid uid) { return graph_.tensor(heads_of(uid, 1)); }
  GraphTensor log_sum_exp() { return graph_.tensor(statistics()); }

  void gives_third(const GraphTensor& tensor, Uid uid) const { give(tensor, heads_of(uid, 3)); }
  void gives_whole(const GraphTensor& tensor, Uid uid) const { give(tensor, heads_of(uid, 1)); }
  void gives_log_sum_exp(const GraphTensor& tensor) const { give(tensor, statistics()); }

 private:
  graph::Tensor_attributes heads_of(Uid uid, std::int64_t thirds) const {
    const std::int64_t row = thirds * shape_.heads * shape_.width;
    return graph::Tensor_attributes()
        .set_uid(uid)
        .set_data_type(cudnn_frontend::DataType_t::BFLOAT16)
        .set_dim({shape_.batch, shape_.heads, shape_.length, shape_.width})
        .set_stride({shape_.length * row, shape_.width, row, 1});
  }
  graph::Tensor_attributes statistics() const {
    return graph::Tensor_attributes()
        .set_uid(kLogSumExp)
        .set_data_type(cudnn_frontend::DataType_t::FLOAT)
        .set_dim({shape_.batch, shape_.heads, shape_.length, 1})
        .set_stride({shape_.heads * shape_.length, shape_.length, 1, 1});
  }
  static void give(const GraphTensor& tensor, const graph::Tensor_attributes& as) {
    tensor->set_output(true)
        .set_uid(as.get_uid())
        .set_data_type(as.get_data_type())
        .set_dim(as.get_dim())
        .set_stride(as.get_stride());
  }

  graph::Graph& graph_;
  AttentionShape shape_;
};

float scale_of(const AttentionShape& shape) {
  return 1.0F / std::sqrt(static_cast<float>(shape.width));
}

void describe_forward(graph::Graph& graph, const AttentionShape& shape) {
  Layout layout(graph, shape);
  const auto [y, log_sum_exp] = graph.sdpa(layout.third(kQ), layout.third(kK), layout.third(kV),
                                           graph::SDPA_attributes()
                                               .set_name("attention_forward")
                                               .set_generate_stats(true)
                                               .set_causal_mask(true)
                                               .set_attn_scale(scale_of(shape)));
  layout.gives_whole(y, kY);
  layout.gives_log_sum_exp(log_sum_exp);
}

void describe_backward(graph::Graph& graph, const AttentionShape& shape) {
  Layout layout(graph, shape);
  const auto [q_grad, k_grad, v_grad] =
      graph.sdpa_backward(layout.third(kQ), layout.third(kK), layout.third(kV), layout.whole(kY),
                          layout.whole(kYGrad), layout.log_sum_exp(),
                          graph::SDPA_backward_attributes()
                              .set_name("attention_backward")
                              .set_causal_mask(true)
                              .set_attn_scale(scale_of(shape))
                              .set_deterministic_algorithm(true));
  layout.gives_third(q_grad, kQGrad);
  layout.gives_third(k_grad, kKGrad);
  layout.gives_third(v_grad, kVGrad);
}

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
