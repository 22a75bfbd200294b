// SPDX-License-Identifier: Apache-2.0
// For torch_gradients_test.py and bench/gpu.py: the logits and gradients of one pass of a GPT-2
// with initial weights.
//
//   gradients_probe FOLDER SEED ROWS [DEVICE]
//
// reads FOLDER/config.json and FOLDER/batch.bin (i32: tokens, then targets, [ROWS, context] each)
// and writes FOLDER/tensors.bin (f32): the logits, then the gradients of the summed loss. The names
// of the parameters are its output, in that order, a line each.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "lockstep/runtime/gpt2.h"
#include "lockstep/runtime/loss.h"
#include "tests/runtime/nn/gradient_arena.h"
#include "tests/support/on_device.h"

namespace lockstep::nn {
namespace {

void write(std::ofstream& file, const Tensor& tensor) {
  const Tensor here = testing_support::on_host(tensor);
  file.write(static_cast<const char*>(here.data()), static_cast<std::streamsize>(here.bytes()));
}

void run(const std::string& folder, std::uint64_t seed, std::int64_t rows, Device device) {
  std::ifstream json(folder + "/config.json");
  const std::string text{std::istreambuf_iterator<char>(json), {}};
  Stream stream(device);
  Gpt2 model(stream, gpt2_config_from_json(text));
  model.initialize(seed);

  std::ifstream batch(folder + "/batch.bin", std::ios::binary);
  const auto read = [&] {
    const Tensor tensor(Device{}, {rows, model.config().context}, DType::i32);
    batch.read(static_cast<char*>(tensor.data()), static_cast<std::streamsize>(tensor.bytes()));
    return testing_support::on_device(device, tensor);
  };
  const Tensor tokens = read();
  const Tensor targets = read();
  if (!batch) throw std::runtime_error(folder + "/batch.bin is too short");

  std::ofstream out(folder + "/tensors.bin", std::ios::binary);
  const Tensor logits = model.forward(tokens);
  stream.synchronize();
  write(out, logits);  // the loss turns them into their gradient

  GradientArena arena(model.parameters(), device);
  arena.open_pass(false);
  CrossEntropy loss(stream);
  LeafSums sums;
  model.backward(loss.forward_backward(logits, targets, &sums));
  stream.synchronize();
  for (const Parameter* parameter : arena.parameters()) {
    write(out, parameter->grad());
    std::printf("%s\n", parameter->name().c_str());
  }
  if (!out.flush()) throw std::runtime_error(folder + "/tensors.bin cannot be written");
}

}  // namespace
}  // namespace lockstep::nn

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: gradients_probe FOLDER SEED ROWS [DEVICE]\n");
    return 78;
  }
  try {
    lockstep::nn::run(argv[1], std::stoull(argv[2]), std::stoll(argv[3]),
                      lockstep::parse_device(argc == 5 ? argv[4] : "cpu"));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradients_probe: %s\n", error.what());
    return 70;
  }
}
