// SPDX-License-Identifier: Apache-2.0
#include "collectives/shared_memory/shared_memory_backend.h"

#include <algorithm>
#include <cstring>

#include "collectives/shared_memory/elementwise.h"
#include "collectives/shared_memory/prepared_sum.h"
#include "lockstep/core/hash.h"

namespace lockstep::shared_memory {
namespace {

constexpr std::size_t kPiece = Mailbox::kPieceBytes;
// Up to here one synchronisation with everyone reading everything beats two with slices.
constexpr std::size_t kSmallBytes = 4096;
constexpr std::size_t kSliceUnit = 16;  // floats in a cache line: two ranks never write to one
// Arrays of these sizes lie in caches, as far as they do; measured with two ranks.
constexpr std::size_t kFetchedAbove = std::size_t{32} << 10;
constexpr std::size_t kFetchedUpTo = std::size_t{25} << 20;
constexpr std::size_t kTurn = std::size_t{1} << 18;  // floats summed between two turns of others

// Where a rank's arrays are. The places of its parts follow in a piece of their own, but for the
// case of a single part that the sum replaces.
struct PartsHeader {
  Place out;
  std::uint32_t parts = 0;
  std::uint32_t out_is_the_part = 0;
};
static_assert(sizeof(PartsHeader) <= Mailbox::kNoteBytes);
constexpr std::size_t kMostParts = kPiece / sizeof(Place);

struct InPlaceOffer {
  std::uint64_t offered = 0;
  Place place;
};
static_assert(sizeof(InPlaceOffer) <= Mailbox::kNoteBytes);

constexpr std::size_t kErrorBytes = 1024;  // of a message that rank 0 passes on

template <typename T>
void put(std::byte* at, const T& value) {
  std::memcpy(at, &value, sizeof value);
}

template <typename T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// memcpy must not be given null, which is what an empty tensor has.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

UsageError not_allocated(const Descriptor& descriptor) {
  return {to_string(descriptor) + ": a tensor does not lie in memory of this group",
          "take parts and out from Communicator::allocate of the same communicator"};
}

}  // namespace

SharedMemoryBackend::SharedMemoryBackend(const char* name, int rank, int size,
                                         std::shared_ptr<Space> space)
    : name_(name),
      space_(std::move(space)),
      mailbox_(rank, size, space_->map(0, Mailbox::bytes(size))),
      segments_(space_, rank, size, Mailbox::bytes(size)) {}

Descriptor SharedMemoryBackend::begin(CommOperation operation, std::size_t count,
                                      DType dtype) noexcept {
  const Descriptor descriptor{
      .sequence = ++operations_, .count = count, .operation = operation, .dtype = dtype};
  mailbox_.begin(descriptor);
  return descriptor;
}

Task SharedMemoryBackend::allocate(std::size_t bytes, std::shared_ptr<std::byte>& memory,
                                   Wait& wait) {
  const Descriptor descriptor = begin(CommOperation::allocate, bytes, DType::u8);
  std::string failure;
  if (rank() == 0) {
    try {
      segments_.extend(bytes);
    } catch (const Error& error) {
      failure = error.what();
      failure.resize(std::min(failure.size(), kErrorBytes - 1));
    }
    std::memcpy(mailbox_.outgoing(kErrorBytes), failure.c_str(), failure.size() + 1);
  }
  co_await mailbox_.exchange(descriptor, wait);
  failure = reinterpret_cast<const char*>(mailbox_.incoming(0, kErrorBytes));
  if (!failure.empty()) {
    throw DeviceError(wait.operation() + ": " + failure, "use a smaller model or more memory");
  }
  memory = segments_.append(bytes);
}

Task SharedMemoryBackend::all_reduce(std::byte* inout, std::size_t count, DType dtype, ReduceOp op,
                                     Wait& wait) {
  Descriptor descriptor = begin(CommOperation::all_reduce, count, dtype);
  descriptor.op = op;
  const std::size_t bytes = count * size_of(dtype);
  if (bytes > kSmallBytes && dtype == DType::f32 && op == ReduceOp::sum) {
    bool done = false;
    co_await all_reduce_in_place(reinterpret_cast<float*>(inout), count, descriptor, done, wait);
    if (done) co_return;
  }
  for (std::size_t at = 0; at < std::max<std::size_t>(bytes, 1); at += kPiece) {
    const std::size_t n = std::min(kPiece, bytes - at);
    copy_bytes(mailbox_.outgoing(n), inout + at, n);
    co_await mailbox_.exchange(descriptor, wait);
    copy_bytes(inout + at, mailbox_.incoming(0, n), n);
    for (int peer = 1; peer < size(); ++peer) {
      combine(inout + at, mailbox_.incoming(peer, n), n / size_of(dtype), dtype, op);
    }
  }
  count_moved(bytes * peers());
}

// `done`: all ranks have their array in shared memory, or none goes this way.
Task SharedMemoryBackend::all_reduce_in_place(float* inout, std::size_t count,
                                              const Descriptor& descriptor, bool& done,
                                              Wait& wait) {
  const auto place = segments_.find(inout, count * sizeof(float));
  put(mailbox_.outgoing(sizeof(InPlaceOffer)),
      InPlaceOffer{.offered = place ? 1U : 0U, .place = place.value_or(Place{})});
  co_await mailbox_.exchange(descriptor, wait);
  Shown shown;
  shown.outs.reserve(peers() + 1);
  for (int peer = 0; peer < size(); ++peer) {
    const auto offer = get<InPlaceOffer>(mailbox_.incoming(peer, sizeof(InPlaceOffer)));
    if (offer.offered == 0) co_return;
    shown.outs.push_back(reinterpret_cast<float*>(segments_.at(peer, offer.place)));
  }
  shown.parts = shown.outs;
  const SumPlan plan = ordered_plan(size());
  co_await sum_slice(plan, shown.parts, shown.outs, own_slice(count), count, wait);
  co_await mailbox_.exchange(descriptor, wait);
  done = true;
}

Task SharedMemoryBackend::show_parts(std::span<float* const> parts, float* out, std::size_t count,
                                     Purpose purpose, Shown& shown, Wait& wait) {
  Descriptor descriptor = begin(purpose.operation, count, DType::f32);
  descriptor.detail = purpose.detail;
  const std::size_t bytes = count * sizeof(float);
  const auto out_place = segments_.find(out, bytes);
  if (!out_place || parts.size() > kMostParts) throw not_allocated(descriptor);
  const bool out_is_the_part = parts.size() == 1 && parts.front() == out;
  put(mailbox_.outgoing(sizeof(PartsHeader)),
      PartsHeader{.out = *out_place,
                  .parts = static_cast<std::uint32_t>(parts.size()),
                  .out_is_the_part = out_is_the_part ? 1U : 0U});
  std::byte* piece = mailbox_.outgoing(kPiece);
  for (const float* part : out_is_the_part ? std::span<float* const>{} : parts) {
    const auto place = segments_.find(part, bytes);
    if (!place) throw not_allocated(descriptor);
    put(piece, *place);
    piece += sizeof(Place);
  }
  co_await mailbox_.exchange(descriptor, wait);
  shown.outs.reserve(peers() + 1);
  shown.parts.reserve(parts.size() * (peers() + 1));
  for (int peer = 0; peer < size(); ++peer) {
    const auto header = get<PartsHeader>(mailbox_.incoming(peer, sizeof(PartsHeader)));
    shown.outs.push_back(reinterpret_cast<float*>(segments_.at(peer, header.out)));
    if (header.out_is_the_part != 0) {
      shown.parts.push_back(shown.outs.back());
      continue;
    }
    const std::byte* theirs = mailbox_.incoming(peer, kPiece);
    for (std::uint32_t i = 0; i < header.parts; ++i, theirs += sizeof(Place)) {
      shown.parts.push_back(reinterpret_cast<float*>(segments_.at(peer, get<Place>(theirs))));
    }
  }
}

Task SharedMemoryBackend::reduce_parts(std::span<float* const> parts, float* out, std::size_t count,
                                       const SumPlan& plan, Wait& wait) {
  Shown shown;
  co_await show_parts(parts, out, count, {.detail = fingerprint(plan)}, shown, wait);
  co_await sum_slice(plan, shown.parts, shown.outs, own_slice(count), count, wait);
  co_await barrier(wait);
}

Task SharedMemoryBackend::prepare_reduce_parts(std::span<float* const> parts, float* out,
                                               std::size_t count,
                                               std::shared_ptr<const SumPlan> plan,
                                               std::shared_ptr<Prepared>& prepared, Wait& wait) {
  const std::uint64_t detail = ++prepared_ << 32U | fingerprint(*plan);
  Shown shown;
  co_await show_parts(parts, out, count, {.detail = detail}, shown, wait);
  prepared = std::make_shared<PreparedSum>(*this, std::move(plan), std::move(shown), count, detail);
}

SharedMemoryBackend::Slice SharedMemoryBackend::own_slice(std::size_t count) const noexcept {
  const std::size_t units = (count + kSliceUnit - 1) / kSliceUnit;
  const auto edge = [&](int rank) {
    const auto share = units * static_cast<std::size_t>(rank) / static_cast<std::size_t>(size());
    return std::min(share * kSliceUnit, count);
  };
  return {.begin = edge(rank()), .end = edge(rank() + 1)};
}

bool SharedMemoryBackend::shares(const float* data, std::size_t count) const noexcept {
  return segments_.find(data, count * sizeof(float)).has_value();
}

Task SharedMemoryBackend::sum_slice(const SumPlan& plan, const std::vector<float*>& parts,
                                    const std::vector<float*>& outs, Slice slice, std::size_t count,
                                    Wait& wait) {
  const std::vector<const float*> sources(parts.begin(), parts.end());
  for (std::size_t at = slice.begin; at < slice.end; at += kTurn) {
    if (at > slice.begin) co_await wait.turn();
    run_sum(plan, sources, outs, at, std::min(at + kTurn, slice.end), walk_through(count));
  }
  count_stored(slice, outs.size());
}

Walk SharedMemoryBackend::walk_through(std::size_t count) const noexcept {
  const std::size_t bytes = count * sizeof(float);
  const bool in_caches = bytes > kFetchedAbove && bytes <= kFetchedUpTo;
  return {.lines = in_caches ? Lines::fetched_ahead : Lines::as_they_come,
          .direction = rank() % 2 == 0 ? Direction::downward : Direction::upward};
}

void SharedMemoryBackend::count_stored(Slice slice, std::size_t outs) noexcept {
  count_moved((slice.end - slice.begin) * sizeof(float) * (outs - 1));
}

Task SharedMemoryBackend::reduce_scatter(std::span<float* const> parts, float* out,
                                         std::size_t count, const SumPlan& plan,
                                         std::span<const std::size_t> edges, Wait& wait) {
  Shown shown;
  co_await show_parts(parts, out, count,
                      {.operation = CommOperation::reduce_scatter,
                       .detail = crc32c(std::as_bytes(edges), fingerprint(plan))},
                      shown, wait);
  const auto self = static_cast<std::size_t>(rank());
  const std::vector<float*> outs{out};
  co_await sum_slice(plan, shown.parts, outs, {.begin = edges[self], .end = edges[self + 1]}, count,
                     wait);
  co_await barrier(wait);
}

Task SharedMemoryBackend::all_gather_slices(float* inout, std::size_t count,
                                            std::span<const std::size_t> edges, Wait& wait) {
  Descriptor descriptor = begin(CommOperation::all_gather_slices, count, DType::f32);
  descriptor.detail = crc32c(std::as_bytes(edges));
  const auto place = segments_.find(inout, count * sizeof(float));
  if (!place) throw not_allocated(descriptor);
  put(mailbox_.outgoing(sizeof(Place)), *place);
  co_await mailbox_.exchange(descriptor, wait);
  std::vector<const float*> sources;
  sources.reserve(peers() + 1);
  for (int peer = 0; peer < size(); ++peer) {
    sources.push_back(reinterpret_cast<const float*>(
        segments_.at(peer, get<Place>(mailbox_.incoming(peer, sizeof(Place))))));
  }
  // Each rank begins with another one's slice.
  for (int step = 1; step < size(); ++step) {
    const auto peer = static_cast<std::size_t>((rank() + step) % size());
    for (std::size_t at = edges[peer]; at < edges[peer + 1]; at += kTurn) {
      const std::size_t n = std::min(kTurn, edges[peer + 1] - at);
      std::memcpy(inout + at, sources[peer] + at, n * sizeof(float));
      co_await wait.turn();
    }
  }
  const auto self = static_cast<std::size_t>(rank());
  count_moved((edges[self + 1] - edges[self]) * sizeof(float) * peers());
  co_await barrier(wait);
}

Task SharedMemoryBackend::all_gather(const std::byte* in, std::byte* out, std::size_t bytes_each,
                                     Wait& wait) {
  const Descriptor descriptor = begin(CommOperation::all_gather, bytes_each, DType::u8);
  for (std::size_t at = 0; at < std::max<std::size_t>(bytes_each, 1); at += kPiece) {
    const std::size_t n = std::min(kPiece, bytes_each - at);
    copy_bytes(mailbox_.outgoing(n), in + at, n);
    co_await mailbox_.exchange(descriptor, wait);
    for (int peer = 0; peer < size(); ++peer) {
      copy_bytes(out + static_cast<std::size_t>(peer) * bytes_each + at, mailbox_.incoming(peer, n),
                 n);
    }
  }
  count_moved(bytes_each * peers());
}

Task SharedMemoryBackend::broadcast(std::byte* inout, std::size_t bytes, int root, Wait& wait) {
  Descriptor descriptor = begin(CommOperation::broadcast, bytes, DType::u8);
  descriptor.detail = static_cast<std::uint64_t>(root);
  for (std::size_t at = 0; at < std::max<std::size_t>(bytes, 1); at += kPiece) {
    const std::size_t n = std::min(kPiece, bytes - at);
    if (rank() == root) copy_bytes(mailbox_.outgoing(n), inout + at, n);
    co_await mailbox_.exchange(descriptor, wait);
    if (rank() != root) copy_bytes(inout + at, mailbox_.incoming(root, n), n);
  }
  if (rank() == root) count_moved(bytes * peers());
}

Task SharedMemoryBackend::barrier(Wait& wait) {
  co_await mailbox_.exchange(begin(CommOperation::barrier, 0, DType::u8), wait);
}

}  // namespace lockstep::shared_memory
