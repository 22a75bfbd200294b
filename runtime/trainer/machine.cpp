// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include "core/cuda/device.h"
#include "core/kernels.h"
#include "runtime/trainer/trainer_state.h"

namespace lockstep {
namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace

std::map<std::string, std::string> bit_options(const TrainOptions& options, int ranks) {
  std::map<std::string, std::string> bits = {
      {"precision", options.precision == DType::f16 ? "fp16" : to_string(options.precision)},
      {"reduction", to_string(options.reducer.reduction)},
      {"wire", to_string(options.reducer.wire)}};
  if (options.reducer.reduction != Reduction::invariant) bits["ranks"] = std::to_string(ranks);
  return bits;
}

std::map<std::string, std::string> machine_code(Device device, DType precision) {
  std::map<std::string, std::string> code = {{"cpu", cpu_model()},
                                             {"isa", kernels::instruction_set()},
                                             {"gemm", kernels::gemm_library()},
                                             {"compiler", __VERSION__},
                                             {"lockstep", LOCKSTEP_VERSION}};
  if (device.kind == DeviceKind::cuda) {
    code["gpu"] = cuda::device_name(device.index);
    code["gemm"] = cuda::gemm_library();
    if (precision == DType::bf16) code["attention"] = cuda::attention_library();
  }
  return code;
}

}  // namespace lockstep
