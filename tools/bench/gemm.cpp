// SPDX-License-Identifier: Apache-2.0
// Matrix products of a linear layer, on all ranks at once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "lockstep/core/rng.h"
#include "lockstep/runtime/layers.h"
#include "tools/bench/bench.h"

namespace lockstep::tools {
namespace {

void fill(const Tensor& tensor, const char* name) {
  fill_normal({tensor.as<float>(), static_cast<std::size_t>(tensor.size())}, 0, 1, name, 1.0);
}

// A few elements against sums in fp64.
void check(const Tensor& x, const Tensor& weight, const Tensor& y) {
  const std::int64_t in = weight.dim(0);
  const std::int64_t out = weight.dim(1);
  for (std::int64_t i = 0; i < y.size(); i += y.size() / 13 + 1) {
    double sum = 0.0;
    double size = 0.0;
    for (std::int64_t k = 0; k < in; ++k) {
      const double term = static_cast<double>(x.as<float>()[i / out * in + k]) *
                          static_cast<double>(weight.as<float>()[k * out + i % out]);
      sum += term;
      size += std::abs(term);
    }
    if (std::abs(static_cast<double>(y.as<float>()[i]) - sum) <= 1e-5 * size) continue;
    throw NumericError("element " + std::to_string(i) + " of the product is " +
                           std::to_string(y.as<float>()[i]) + ", not " + std::to_string(sum),
                       "this is a fault of the kernel: report it");
  }
}

void run(ProcessGroup& group, const BenchOptions& options) {
  const std::int64_t rows = options.own.integer("rows");
  for (std::int64_t width = 128; width <= options.own.integer("max_width"); width *= 2) {
    Stream stream{Device{}};
    nn::Workspace workspace{Device{}};
    nn::Linear layer(stream, workspace, "gemm", width, 4 * width);
    layer.visit([](Parameter& parameter) { fill(parameter.value(), parameter.name().c_str()); });
    Tensor weight;
    layer.visit([&](Parameter& parameter) {
      if (parameter.name() == "gemm.weight")
        weight = parameter.value();
      else
        std::fill_n(parameter.value().as<float>(), parameter.size(), 0.0F);
    });
    const Tensor x(Device{}, {rows, width}, DType::f32);
    fill(x, "x");
    std::vector<double> seconds;
    for (std::int64_t i = 0; i <= options.own.integer("repeats"); ++i) {
      const double time = timed(group, [&] {
        layer.forward(x);
        stream.synchronize();
      });
      if (i > 0) seconds.push_back(time);
    }
    const Tensor y = layer.forward(x);
    stream.synchronize();
    check(x, weight, y);
    nlohmann::ordered_json line = {{"m", rows}, {"n", 4 * width}, {"k", width}};
    add_spread(line, "seconds", seconds);
    line["gflop_per_s_a_rank"] =
        2.0 * static_cast<double>(rows * width * 4 * width) / median(seconds) / 1e9;
    line["checked"] = true;
    print_line(group, "gemm", line);
  }
}

}  // namespace

Bench bench_gemm() {
  return {.name = "gemm",
          .help = "y = x · weight + bias in f32, by width, on all ranks at once",
          .keys = {{.name = "rows",
                    .type = ConfigType::integer,
                    .default_value = "512",
                    .help = "of x",
                    .min = 1},
                   {.name = "max_width",
                    .type = ConfigType::integer,
                    .default_value = "1024",
                    .help = "columns of x; y has four times as many",
                    .min = 128},
                   {.name = "repeats",
                    .type = ConfigType::integer,
                    .default_value = "20",
                    .help = "timed products a width",
                    .min = 1}},
          .trains = false,
          .run = run};
}

}  // namespace lockstep::tools
