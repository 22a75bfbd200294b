// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/backend.h"
#include "collectives/shared_memory/mailbox.h"
#include "collectives/shared_memory/segments.h"

namespace lockstep::shared_memory {

/// Collectives of ranks that see each other's memory: threads of one process or processes of one
/// host.
///
/// reduce_parts works in place: rank r adds slice r straight from all ranks' memory and stores the
/// sum to all, between two synchronisations. Everything else goes through the mailbox in pieces.
class SharedMemoryBackend final : public Backend {
 public:
  /// `space` has Mailbox::bytes(size) zero bytes at offset 0 already. `name` is "local" or "shm".
  SharedMemoryBackend(const char* name, int rank, int size, std::shared_ptr<Space> space);

  const char* name() const noexcept override { return name_; }
  int rank() const noexcept override { return mailbox_.rank(); }
  int size() const noexcept override { return mailbox_.size(); }

  std::shared_ptr<std::byte> allocate(std::size_t bytes, Wait& wait) override;
  void all_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                  Wait& wait) override;
  void reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                    const SumPlan& plan, Wait& wait) override;
  void all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each, Wait& wait) override;
  void broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) override;
  void barrier(Wait& wait) override;

 private:
  Descriptor begin(CommOperation operation, std::size_t count, DType dtype) noexcept;
  bool all_reduce_in_place(float* inout, std::size_t count, const Descriptor& descriptor,
                           Wait& wait);
  void sum_own_slice(const SumPlan& plan, const std::vector<const float*>& parts,
                     const std::vector<float*>& outs, std::size_t count);
  std::size_t peers() const noexcept { return static_cast<std::size_t>(size() - 1); }

  const char* name_;
  std::shared_ptr<Space> space_;
  Mailbox mailbox_;
  Segments segments_;
  std::uint64_t operations_ = 0;
};

}  // namespace lockstep::shared_memory
