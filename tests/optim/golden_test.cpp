// SPDX-License-Identifier: Apache-2.0
// 100 updates by every optimizer under every schedule against PyTorch's, computed in f64:
// tests/golden/make_optimizer_golden.py.
#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/collectives/bucket_plan.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::optim {
namespace {

class OptimizerGolden : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  double real(const std::string& option) const {
    return golden_.index().at("options").at(option).get<double>();
  }
  float single(const std::string& option) const { return static_cast<float>(real(option)); }

  std::unique_ptr<Optimizer> make(const std::string& name, const Parameters& parameters) const {
    const MomentOptions moments = {.beta1 = real("beta1"),
                                   .beta2 = real("beta2"),
                                   .epsilon = single("eps"),
                                   .weight_decay = single("weight_decay")};
    if (name == "adamw") return std::make_unique<AdamW>(parameters, moments);
    if (name == "adam") {
      return std::make_unique<AdamW>(parameters, moments, WeightDecay::in_gradient);
    }
    if (name == "lamb") {
      std::vector<std::int64_t> sizes;
      for (const Parameter* parameter : parameters) sizes.push_back(parameter->size());
      return std::make_unique<Lamb>(parameters, plan_buckets(sizes, sizeof(float)), moments);
    }
    return std::make_unique<Sgd>(parameters,
                                 SgdOptions{.momentum = name == "sgd" ? 0.0F : single("momentum"),
                                            .nesterov = name == "nesterov",
                                            .weight_decay = moments.weight_decay});
  }

  testing_support::Golden golden_{"optimizers"};
};

TEST_P(OptimizerGolden, EqualsPyTorchAfter100Updates) {
  const auto& [name, kind] = GetParam();
  std::vector<std::unique_ptr<Parameter>> owned;
  Parameters parameters;
  std::vector<Tensor> gradients;
  for (const std::string key : {"mlp.weight", "mlp.bias"}) {
    const Tensor start = golden_.tensor(key + ".start");
    owned.push_back(std::make_unique<Parameter>(Device{}, key, start.shape()));
    parameters.push_back(owned.back().get());
    std::copy_n(start.as<float>(), start.size(), owned.back()->value().as<float>());
    gradients.push_back(golden_.tensor(key + ".gradients"));
  }
  const auto optimizer = make(name, parameters);
  const auto steps = static_cast<std::int64_t>(real("steps"));
  const Schedule schedule({.kind = parse_schedule(kind),
                           .peak = real("peak"),
                           .warmup = static_cast<std::int64_t>(real("warmup")),
                           .total = steps,
                           .min_lr = real("min_lr")});
  Stream stream{Device{}};
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor gradient(Device{}, parameters[i]->shape(), DType::f32);
      std::copy_n(gradients[i].as<float>() + step * gradient.size(), gradient.size(),
                  gradient.as<float>());
      parameters[i]->begin_pass(gradient, false);
    }
    optimizer->step(stream, {.learning_rate = schedule.at(step + 1)});
    stream.synchronize();
  }
  for (const Parameter* parameter : parameters) {
    const Tensor wanted = golden_.tensor(name + "." + kind + "." + parameter->name());
    double distance = 0.0;
    double size = 0.0;
    for (std::int64_t i = 0; i < wanted.size(); ++i) {
      const auto want = static_cast<double>(wanted.as<float>()[i]);
      distance += std::pow(static_cast<double>(parameter->value().as<float>()[i]) - want, 2);
      size += want * want;
    }
    EXPECT_LT(std::sqrt(distance / size), 1e-6) << parameter->name();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, OptimizerGolden,
    ::testing::Combine(::testing::Values("sgd", "momentum", "nesterov", "adam", "adamw", "lamb"),
                       ::testing::Values("constant", "linear", "cosine", "wsd")),
    [](const auto& run) { return std::get<0>(run.param) + "_" + std::get<1>(run.param); });

}  // namespace
}  // namespace lockstep::optim
