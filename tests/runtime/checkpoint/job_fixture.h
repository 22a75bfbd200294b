// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/hash.h"
#include "lockstep/runtime/checkpoint.h"
#include "lockstep/runtime/checkpoint_tools.h"
#include "tests/support/ranks.h"

namespace lockstep::testing {

struct TensorSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
};

/// A state with a param, and m and v for f32 params, for each spec.
class TestState {
 public:
  explicit TestState(const std::vector<TensorSpec>& specs) {
    for (const TensorSpec& spec : specs) {
      model_.push_back({spec.name, spec.shape});
      dict_.bind(spec.name, StateKind::param, Tensor::zeros({}, spec.shape, spec.dtype));
      if (spec.dtype != DType::f32) continue;
      for (const StateKind kind : {StateKind::m, StateKind::v}) {
        dict_.bind(spec.name, kind, Tensor::zeros({}, spec.shape, DType::f32));
      }
    }
  }

  const StateDict& dict() const { return dict_; }
  const std::vector<ModelTensor>& model() const { return model_; }

  /// Arbitrary bits: a checkpoint keeps them, whatever they mean.
  void fill(std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    for (const StateEntry& entry : dict_.entries()) {
      auto* bytes = static_cast<unsigned char*>(entry.tensor.data());
      for (std::size_t done = 0; done < entry.tensor.bytes(); done += sizeof(std::uint64_t)) {
        const std::uint64_t bits = random();
        std::memcpy(bytes + done, &bits, std::min(sizeof bits, entry.tensor.bytes() - done));
      }
    }
  }

  /// All of its bytes.
  std::string bytes() const {
    std::string all;
    for (const StateEntry& entry : dict_.entries()) {
      all.append(static_cast<const char*>(entry.tensor.data()), entry.tensor.bytes());
    }
    return all;
  }

 private:
  std::vector<ModelTensor> model_;
  StateDict dict_;
};

inline std::string bytes_of_step(const std::vector<TensorSpec>& specs, std::uint64_t step) {
  const TestState state(specs);
  state.fill(step);
  return state.bytes();
}

inline TrainState scalars_of(std::uint64_t step) {
  return {.step = step,
          .tokens = step * 1000,
          .seed = UINT64_MAX,
          .data = {.fingerprint = std::string(64, 'f'), .seed = 7, .epoch = 2, .position = 96},
          .schedule_total = 500,
          .schedule_position = step,
          .leaves = 4,
          .micro = 4,
          .model = "{\n  \"model_type\": \"gpt2\",\n  \"layer_norm_epsilon\": 1e-05\n}\n",
          .code = {{"cpu", "test"}, {"lockstep", "0.1.0"}}};
}

inline const std::vector<TensorSpec>& small_model() {
  static const std::vector<TensorSpec> specs = {{"transformer.wte.weight", {60, 50}},
                                                {"transformer.h.0.ln_1.bias", {50}},
                                                {"transformer.h.0.attn.c_attn.weight", {50, 150}},
                                                {"temperature", {}},
                                                {"empty", {0, 4}}};
  return specs;
}

/// 36 MiB of state: what is read in several pieces.
inline const std::vector<TensorSpec>& large_model() {
  static const std::vector<TensorSpec> specs = {
      {"bias", {7}}, {"weight", {2048, 1500}}, {"empty", {0, 4}}};
  return specs;
}

inline std::unique_ptr<ObjectStore> fresh_memory_store() {
  return ObjectStore::open("mem:" + random_hex(8));
}

/// One launch on one rank.
class Launch {
 public:
  Launch(ObjectStore& store, Communicator& world, const std::vector<TensorSpec>& specs,
         ResumePolicy resume = ResumePolicy::automatic, std::uint64_t keep = 3)
      : state(specs),
        checkpointer(store, world,
                     {.mesh = {.dp = static_cast<std::uint64_t>(world.size()), .tp = 1, .zero = 0},
                      .keep = keep}),
        opened(checkpointer.open(
            {.model = state.model(), .code = {{"cpu", "test"}}, .resume = resume})) {}

  SaveResult save(std::uint64_t step) {
    state.fill(step);
    return checkpointer.save(scalars_of(step), state.dict());
  }
  std::optional<LoadResult> load() { return checkpointer.load(state.dict()); }

  TestState state;
  Checkpointer checkpointer;
  OpenResult opened;
};

/// Saves the steps in one launch of `ranks` ranks.
inline void save_steps(ObjectStore& store, int ranks, const std::vector<std::uint64_t>& steps,
                       const std::vector<TensorSpec>& specs = small_model(),
                       std::uint64_t keep = 3) {
  run_ranks(ranks, [&](Communicator& world) {
    Launch launch(store, world, specs, ResumePolicy::automatic, keep);
    launch.load();
    for (const std::uint64_t step : steps) launch.save(step);
  });
}

struct Loaded {
  std::optional<LoadResult> result;
  std::vector<std::string> bytes;  // of the state of each rank
};

/// Loads in one launch of `ranks` ranks.
inline Loaded load_newest(ObjectStore& store, int ranks,
                          const std::vector<TensorSpec>& specs = small_model()) {
  Loaded loaded;
  loaded.bytes.resize(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& world) {
    Launch launch(store, world, specs);
    auto result = launch.load();
    loaded.bytes[static_cast<std::size_t>(world.rank())] = launch.state.bytes();
    if (world.rank() == 0) loaded.result = std::move(result);
  });
  return loaded;
}

/// Flips one bit of an object.
inline void flip_bit(ObjectStore& store, const std::string& key, std::size_t byte, int bit) {
  std::string text = store.read(key).value();
  text[byte] = static_cast<char>(static_cast<unsigned char>(text[byte]) ^ (1U << bit));
  store.remove(key);
  store.create_if_absent(key, text, 1);
}

inline std::vector<std::string> keys_under(ObjectStore& store, const std::string& prefix) {
  std::vector<std::string> keys;
  for (const ObjectInfo& info : store.list(prefix)) keys.push_back(info.key);
  return keys;
}

}  // namespace lockstep::testing
