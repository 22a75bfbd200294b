// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/cudnn_graphs.h"

#include <cmath>
#include <memory>

namespace lockstep::cuda {
namespace {

namespace graph = cudnn_frontend::graph;

using GraphTensor = std::shared_ptr<graph::Tensor_attributes>;

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

}  // namespace

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

}  // namespace lockstep::cuda
