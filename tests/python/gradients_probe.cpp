// SPDX-License-Identifier: Apache-2.0
// For torch_gradients_test.py: the logits and gradients of one pass of a GPT-2 with initial
// weights.
//
//   gradients_probe FOLDER SEED ROWS
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

namespace lockstep::nn {
namespace {

void write(std::ofstream& file, const Tensor& tensor) {
  file.write(static_cast<const char*>(tensor.data()), static_cast<std::streamsize>(tensor.bytes()));
}

void run(const std::string& folder, std::uint64_t seed, std::int64_t rows) {
  std::ifstream json(folder + "/config.json");
  const std::string text{std::istreambuf_iterator<char>(json), {}};
  Stream stream{Device{}};
  Gpt2 model(stream, gpt2_config_from_json(text));
  model.initialize(seed);

  std::ifstream batch(folder + "/batch.bin", std::ios::binary);
  const auto read = [&] {
    Tensor tensor(Device{}, {rows, model.config().context}, DType::i32);
    batch.read(static_cast<char*>(tensor.data()), static_cast<std::streamsize>(tensor.bytes()));
    return tensor;
  };
  const Tensor tokens = read();
  const Tensor targets = read();
  if (!batch) throw std::runtime_error(folder + "/batch.bin is too short");

  std::ofstream out(folder + "/tensors.bin", std::ios::binary);
  const Tensor logits = model.forward(tokens);
  stream.synchronize();
  write(out, logits);  // the loss turns them into their gradient

  GradientArena arena(model.parameters());
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
  if (argc != 4) {
    std::fprintf(stderr, "usage: gradients_probe FOLDER SEED ROWS\n");
    return 78;
  }
  try {
    lockstep::nn::run(argv[1], std::stoull(argv[2]), std::stoll(argv[3]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradients_probe: %s\n", error.what());
    return 70;
  }
}
