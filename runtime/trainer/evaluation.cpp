// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/evaluation.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep/collectives/agree.h"
#include "lockstep/collectives/sum_plan.h"
#include "runtime/trainer/device_wait.h"
#include "runtime/trainer/staged_batch.h"

namespace lockstep {

std::optional<double> evaluate(Communicator& group, Stream& compute, nn::Model& model,
                               nn::CrossEntropy& loss, const TokenStream& held_back,
                               const EvaluationOptions& options) {
  const std::int64_t samples =
      std::min(options.samples, sample_count(held_back.size(), options.context));
  if (samples <= 0) return std::nullopt;
  const std::int64_t leaves = (samples + options.micro_batch - 1) / options.micro_batch;
  const LeafRange mine = owned_leaves(group.rank(), group.size(), leaves);

  std::vector<LeafSums> sums(static_cast<std::size_t>(mine.size()));
  // The host writes one while the device still reads the other.
  std::array batches = {StagedBatch(compute.device(), options.micro_batch, options.context),
                        StagedBatch(compute.device(), options.micro_batch, options.context)};
  for (std::int64_t i = 0; i < mine.size(); ++i) {
    StagedBatch& batch = batches[static_cast<std::size_t>(i % 2)];
    wait_for_compute(group, compute, batch.free, "an evaluation's batch");
    read_samples(held_back, (mine.begin + i) * options.micro_batch, samples, batch.host);
    batch.send(compute);
    loss.evaluate(model.forward(batch.device.tokens), batch.device.targets,
                  &sums[static_cast<std::size_t>(i)]);
    batch.free = compute.record();
  }
  wait_for_compute(group, compute, compute.record(), "an evaluation");

  const std::string_view bytes(reinterpret_cast<const char*>(sums.data()),
                               sums.size() * sizeof(LeafSums));
  double total = 0.0;
  std::int64_t tokens = 0;
  for (const std::string& text : gather_text(group, bytes)) {  // by rank, so by leaf
    for (std::size_t at = 0; at < text.size(); at += sizeof(LeafSums)) {
      LeafSums leaf;
      std::memcpy(&leaf, text.data() + at, sizeof leaf);
      total += leaf.loss;
      tokens += leaf.tokens;
    }
  }
  return static_cast<float>(total / static_cast<double>(tokens));
}

}  // namespace lockstep
