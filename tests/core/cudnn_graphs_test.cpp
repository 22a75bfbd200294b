// SPDX-License-Identifier: Apache-2.0
// The real cuDNN and its frontend take the graphs of attention, for each kind of GPU that we
// compile for. What becomes of them needs such a GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/cuda/cudnn_graphs.h"

namespace lockstep::cuda {
namespace {

using cudnn_frontend::graph::Graph;

// "" or what is wrong with it.
std::string fault_of(void (*describe)(Graph&, const AttentionShape&), const AttentionShape& shape) {
  Graph graph;
  describe(graph, shape);
  cudnn_frontend::error_t status = graph.validate();
  if (status.is_bad()) return "validate: " + status.get_message();
  status = graph.build_operation_graph(nullptr);
  return status.is_bad() ? "build_operation_graph: " + status.get_message() : "";
}

class CudnnGraphs : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const FoundAttention found = find_cudnn();
    if (found.name.empty()) GTEST_SKIP() << found.reason;
    if (GetParam() >= 100 && cudnn_frontend::detail::get_backend_version() < 91800) {
      GTEST_SKIP() << found.name << " has no deterministic backward pass for it";
    }
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", LOCKSTEP_A_KIND_OF_GPU, 1);
    setenv("LOCKSTEP_FAKE_CAPABILITY", std::to_string(GetParam()).c_str(), 1);
  }
};

TEST_P(CudnnGraphs, AreTaken) {
  for (const AttentionShape& shape : {AttentionShape{16, 1024, 12, 64}, AttentionShape{1, 64, 1, 8},
                                      AttentionShape{3, 192, 5, 128}}) {
    EXPECT_EQ(fault_of(describe_forward, shape), "") << shape.length;
    EXPECT_EQ(fault_of(describe_backward, shape), "") << shape.length;
  }
}

TEST_P(CudnnGraphs, OfHeadsThatAreTooWideAreRefused) {
  const AttentionShape shape{.batch = 1, .length = 128, .heads = 1, .width = 520};
  EXPECT_NE(fault_of(describe_backward, shape), "");
}

INSTANTIATE_TEST_SUITE_P(Capability, CudnnGraphs, testing::Values(80, 90, 100),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace lockstep::cuda
