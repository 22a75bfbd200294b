// SPDX-License-Identifier: Apache-2.0
// A GPT with data parallelism, exact accumulation, checkpoints and resume: what `lockstep train`
// does, by hand, and the same bits.
//
//   scripts/mpirun-local -n 2 build/release/bin/03_gpt text:include RUN
//
//   step 10 loss 4.44419718
//   step 20 loss 3.57257295
//   step 30 loss 3.23713803
//   step 40 loss 3.16675782
//
// Again with the same RUN it goes on where it stopped; SIGTERM to any rank saves first.
#include <cstdio>
#include <string>

#include "lockstep/lockstep.h"

namespace ls = lockstep;

constexpr std::int64_t kSteps = 40;
constexpr std::int64_t kGlobal = 16;  // sequences of a step
constexpr std::int64_t kMicro = 4;    // of one forward/backward

ls::Outcome train(ls::ProcessGroup& group, ls::SignalWatch& signals, const std::string& source,
                  const std::string& run) {
  const ls::Corpus corpus = ls::read_corpus(source);
  ls::SampleSequence samples(corpus.train, 128, kGlobal, kMicro, 0);
  ls::Stream compute{ls::Device{}};
  ls::nn::Gpt2 model(compute,
                     {.layers = 4, .heads = 4, .hidden = 128, .vocab = 256, .context = 128});
  model.initialize(0);
  ls::nn::CrossEntropy loss(compute);
  ls::GradientReducer reducer(group.world(), compute, model.parameters(), kGlobal / kMicro);
  ls::optim::AdamW optimizer(model.parameters());
  ls::optim::GlobalNorm norm(model.parameters(), reducer.plan());
  const ls::optim::Schedule schedule({.peak = 1e-3, .warmup = 10, .total = kSteps});

  ls::StateDict state;
  model.bind(state);
  optimizer.bind(state);
  const auto store = ls::ObjectStore::open("file:" + run);
  const auto ranks = static_cast<std::uint64_t>(group.size());
  ls::Checkpointer checkpoints(*store, group.world(), {.mesh = {.dp = ranks}});
  checkpoints.open({.model = ls::tensors_of(model.parameters())});
  ls::TrainState at{.data = {.fingerprint = corpus.fingerprint}, .leaves = kGlobal / kMicro};
  if (const auto loaded = checkpoints.load(state)) {
    at = loaded->state;
    samples.seek({.epoch = static_cast<std::int64_t>(at.data.epoch),
                  .position = static_cast<std::int64_t>(at.data.position)});
    optimizer.set_updates(static_cast<std::int64_t>(at.schedule_position));
  }

  for (bool notice = false; !notice && at.step < kSteps;) {
    reducer.begin_step();
    reducer.set_flags({.notice = signals.poll().has_value()});
    for (auto leaf = reducer.leaves().begin; leaf < reducer.leaves().end; ++leaf) {
      const ls::Batch batch = ls::make_batch(kMicro, 128);
      samples.read_leaf(leaf, batch);
      reducer.begin_leaf(leaf);
      const ls::Tensor logits = model.forward(batch.tokens);
      model.backward(loss.forward_backward(logits, batch.targets, reducer.leaf_sums()));
    }
    const ls::StepTotals totals = reducer.finish();  // gradients are sums over all tokens
    const double mean_norm = norm.measure(compute, reducer.arena()).per_token(totals.tokens);
    optimizer.step(compute, {.learning_rate = schedule.at(optimizer.updates() + 1),
                             .scale = static_cast<float>(1.0 / static_cast<double>(totals.tokens)),
                             .clip = ls::optim::clip_factor(mean_norm, 1.0)});
    compute.synchronize();
    samples.advance();
    notice = totals.notice;
    at.tokens += static_cast<std::uint64_t>(totals.tokens);
    if (++at.step % 10 == 0 && group.rank() == 0) {
      const double mean = totals.loss / static_cast<double>(totals.tokens);
      std::printf("step %lu loss %.9g\n", at.step, static_cast<double>(static_cast<float>(mean)));
      std::fflush(stdout);
    }
    at.schedule_position = static_cast<std::uint64_t>(optimizer.updates());
    at.data.epoch = static_cast<std::uint64_t>(samples.cursor().epoch);
    at.data.position = static_cast<std::uint64_t>(samples.cursor().position);
    if (notice || at.step % 20 == 0) checkpoints.save(at, state);
  }
  return at.step < kSteps ? ls::Outcome::saved : ls::Outcome::finished;
}

int main(int argc, char** argv) {
  ls::SignalWatch signals;  // before any thread
  const std::string source = argc > 1 ? argv[1] : "text:include";
  const std::string run = argc > 2 ? argv[2] : "runs/03_gpt";
  ls::run_job({}, [&](ls::ProcessGroup& group) { return train(group, signals, source, run); });
}
