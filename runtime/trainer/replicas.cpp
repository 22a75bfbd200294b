// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer/replicas.h"

#include <span>
#include <string>

#include "core/copy.h"
#include "lockstep/collectives/agree.h"
#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"

namespace lockstep {

void check_replicas(Communicator& group, const Parameters& parameters, std::int64_t step) {
  if (group.size() == 1) return;
  std::string mine;
  for (const Parameter* parameter : parameters) {
    const Tensor value = on_host(parameter->value());
    const std::uint32_t crc =
        crc32c(std::span(static_cast<const std::byte*>(value.data()), value.bytes()));
    mine.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  }
  const auto all = gather_text(group, mine);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank].substr(4 * i, 4) == all[0].substr(4 * i, 4)) continue;
      throw NumericError("step " + std::to_string(step) + ": parameter " + parameters[i]->name() +
                             " of rank " + std::to_string(rank) + " differs from rank 0's",
                         "suspect the memory of one of the two machines; the last commit stands");
    }
  }
}

}  // namespace lockstep
