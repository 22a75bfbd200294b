// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/backend.h"
#include "collectives/shared_memory/mailbox.h"
#include "collectives/shared_memory/segments.h"
#include "collectives/shared_memory/sum_program.h"

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
  bool any_thread() const noexcept override { return true; }

  Task allocate(std::size_t bytes, std::shared_ptr<std::byte>& memory, Wait& wait) override;
  Task all_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                  Wait& wait) override;
  Task reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                    const SumPlan& plan, Wait& wait) override;
  Task prepare_reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                            std::shared_ptr<const SumPlan> plan,
                            std::shared_ptr<Prepared>& prepared, Wait& wait) override;
  Task reduce_scatter(std::span<float* const> parts, float* out, std::size_t count,
                      const SumPlan& plan, std::span<const std::size_t> edges, Wait& wait) override;
  Task all_gather_slices(float* inout, std::size_t count, std::span<const std::size_t> edges,
                         Wait& wait) override;
  Task all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each, Wait& wait) override;
  Task broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) override;
  Task barrier(Wait& wait) override;

  // The two halves of reduce_parts, for who does something of his own between them.

  /// Arrays of all ranks, at their addresses here.
  struct Shown {
    std::vector<float*> parts;  // rank by rank, each rank's in its own order
    std::vector<float*> outs;   // by rank
  };
  /// Elements [begin, end).
  struct Slice {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// What it is shown for, which all ranks must agree on.
  struct Purpose {
    CommOperation operation = CommOperation::reduce_parts;
    std::uint64_t detail = 0;  // a hash of plan and slices
  };
  /// `shown` = what all ranks have given, when all have. Throws UsageError for arrays that do not
  /// lie in memory of this group. A barrier must follow before anybody uses his arrays again.
  Task show_parts(std::span<float* const> parts, float* out, std::size_t count, Purpose purpose,
                  Shown& shown, Wait& wait);
  /// The part of `count` elements that this rank adds up.
  Slice own_slice(std::size_t count) const noexcept;
  /// Whether [data, data + count) lies in memory of this group.
  bool shares(const float* data, std::size_t count) const noexcept;

 private:
  class PreparedSum;
  Descriptor begin(CommOperation operation, std::size_t count, DType dtype) noexcept;
  Task all_reduce_in_place(float* inout, std::size_t count, const Descriptor& descriptor,
                           bool& done, Wait& wait);
  /// Adds up `slice` of `count` elements and stores it to all `outs`.
  Task sum_slice(const SumPlan& plan, const std::vector<float*>& parts,
                 const std::vector<float*>& outs, Slice slice, std::size_t count, Wait& wait);
  /// How this rank's slice of arrays of `count` elements is best gone through.
  Walk walk_through(std::size_t count) const noexcept;
  /// A slice of this rank was stored to `outs` ranks.
  void count_stored(Slice slice, std::size_t outs) noexcept;
  std::size_t peers() const noexcept { return static_cast<std::size_t>(size() - 1); }

  const char* name_;
  std::shared_ptr<Space> space_;
  Mailbox mailbox_;
  Segments segments_;
  std::uint64_t operations_ = 0;
  std::uint64_t prepared_ = 0;  // reductions so far
};

}  // namespace lockstep::shared_memory
