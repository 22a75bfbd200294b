// SPDX-License-Identifier: Apache-2.0
// A rank for tests/fault/nccl_fault_test.py: a few sums between GPUs.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "lockstep/collectives/run_job.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 3) {
    std::fprintf(stderr, "usage: nccl_probe auto|nccl|mpi cuda|cuda:N\n");
    return 78;
  }
  GroupOptions options;
  options.backend = argv[1];
  options.collective_timeout = std::chrono::seconds(2);
  const std::string where = argv[2];
  run_job(options, [&](ProcessGroup& job) {
    Device device = parse_device(where);
    if (where == "cuda") device.index = job.local_rank();
    const auto group = job.split("data", 0, job.rank(), Lane::data, device);
    const Tensor gradient = group->allocate(100'000, DType::f32);
    const auto plan = std::make_shared<const SumPlan>(ordered_plan(group->size()));
    for (int step = 0; step < 10; ++step) {
      group->all_reduce(gradient, ReduceOp::sum).wait();
      group->reduce_parts({gradient}, gradient, plan).wait();
    }
    return Outcome::finished;
  });
}
