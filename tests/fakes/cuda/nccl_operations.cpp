// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/nccl_operations.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/fakes/cuda/device_view.h"
#include "tests/fakes/cuda/nccl_reduce.h"
#include "tests/fakes/cuda/stream_queue.h"

namespace lockstep::fake {
namespace {

// Waits until every rank has come to this barrier too.
bool meet(ncclComm& comm) {
  Segment& segment = *comm.segment;
  const std::uint32_t phase = segment.rank(comm.rank).phase.load() + 1;
  segment.rank(comm.rank).phase.store(phase);
  segment.ring();
  return segment.wait(
      [&] {
        for (int i = 0; i < comm.size; ++i) {
          // The difference, so that the number may wrap.
          const std::uint32_t theirs = segment.rank(i).phase.load();
          if (static_cast<std::int32_t>(theirs - phase) < 0) return false;
        }
        return true;
      },
      [&] { return comm.stopped(); });
}

std::string describe(const Operation& operation) {
  const auto kind = static_cast<Kind>(operation.kind);
  std::string text = name_of(kind) + " of " + std::to_string(operation.count) + " " +
                     name_of(static_cast<ncclDataType_t>(operation.type));
  if (kind == Kind::broadcast || kind == Kind::reduce) {
    text += ", root " + std::to_string(operation.root);
  }
  if (kind != Kind::broadcast && kind != Kind::all_gather) {
    text += ", reduction " + std::to_string(operation.reduction);
  }
  return text;
}

bool same_everywhere(ncclComm& comm) {
  const Operation first = comm.segment->rank(0).operation;
  for (int i = 1; i < comm.size; ++i) {
    const Operation& one = comm.segment->rank(i).operation;
    if (one == first) continue;
    comm.set_state(ncclInvalidUsage, "ranks differ: rank 0: " + describe(first) + "; rank " +
                                         std::to_string(i) + ": " + describe(one));
    return false;
  }
  return true;
}

// A collective's way through the slots, a piece at a time: every rank writes, all meet, every rank
// reads, all meet.
class Pieces {
 public:
  Pieces(ncclComm& comm, const Collective& collective)
      : comm_(comm),
        collective_(collective),
        element_(size_of(collective.type)),
        ranks_(static_cast<std::size_t>(comm.size)),
        rank_(static_cast<std::size_t>(comm.rank)),
        piece_(kSlotBytes / element_ /
               (collective.kind == Kind::reduce_scatter ? ranks_ : std::size_t{1})) {}

  std::size_t size() const { return piece_; }

  void write(std::size_t begin, std::size_t count) {
    unsigned char* slot = slot_of(rank_);
    const auto* send = static_cast<const unsigned char*>(device_view(collective_.send));
    if (collective_.kind == Kind::broadcast && comm_.rank != collective_.root) return;
    if (collective_.kind != Kind::reduce_scatter) {
      copy(slot, send + begin * element_, count);
      return;
    }
    for (std::size_t r = 0; r < ranks_; ++r) {
      copy(slot + r * piece_ * element_, send + (r * collective_.count + begin) * element_, count);
    }
  }

  void read(std::size_t begin, std::size_t count) {
    auto* recv = static_cast<unsigned char*>(view(collective_.recv)) + begin * element_;
    switch (collective_.kind) {
      case Kind::broadcast:
        copy(recv, slot_of(static_cast<std::size_t>(collective_.root)), count);
        break;
      case Kind::all_gather:
        for (std::size_t r = 0; r < ranks_; ++r) {
          copy(recv + r * collective_.count * element_, slot_of(r), count);
        }
        break;
      case Kind::reduce:
        if (comm_.rank == collective_.root) reduce_slots(0, count, recv);
        break;
      case Kind::all_reduce:
        reduce_slots(0, count, recv);
        break;
      case Kind::reduce_scatter:
        reduce_slots(rank_ * piece_ * element_, count, recv);
        break;
    }
  }

 private:
  unsigned char* slot_of(std::size_t rank) { return comm_.segment->shared().slots[rank]; }

  void copy(void* to, const void* from, std::size_t count) const {
    if (count != 0) std::memcpy(to, from, count * element_);
  }

  void reduce_slots(std::size_t offset, std::size_t count, void* out) {
    std::vector<const void*> inputs;
    for (std::size_t r = 0; r < ranks_; ++r) inputs.push_back(slot_of(r) + offset);
    lockstep::fake::reduce(collective_.type, collective_.reduction, inputs, count, out);
  }

  ncclComm& comm_;
  const Collective& collective_;
  std::size_t element_;
  std::size_t ranks_;
  std::size_t rank_;
  std::size_t piece_;
};

// A message on its way through the channel of its two ranks.
class Transfer {
 public:
  Transfer(ncclComm& comm, const Message& message)
      : comm_(comm),
        message_(message),
        channel_(message.sends ? comm.segment->shared().channels[comm.rank][message.peer]
                               : comm.segment->shared().channels[message.peer][comm.rank]),
        bytes_(message.count * size_of(message.type)) {}

  bool done() const { return done_; }
  bool same_way(const Transfer& other) const {
    return &channel_ == &other.channel_ && message_.sends == other.message_.sends;
  }
  /// True if anything moved.
  bool progress() { return message_.sends ? send() : receive(); }
  bool mismatch() const { return channel_.mismatch.load() != 0; }

 private:
  bool send() {
    if (channel_.written.load() != channel_.read.load()) return false;
    if (moved_ == bytes_ && begun_) {
      done_ = true;  // and read: a mismatch is known by now
      return true;
    }
    const std::size_t piece = std::min(bytes_ - moved_, kChannelBytes);
    channel_.type = static_cast<std::int32_t>(message_.type);
    channel_.count = message_.count;
    channel_.bytes = piece;
    if (piece != 0) {
      std::memcpy(channel_.data, static_cast<const unsigned char*>(view(message_.data)) + moved_,
                  piece);
    }
    moved_ += piece;
    begun_ = true;
    channel_.written.fetch_add(1);
    comm_.segment->ring();
    return true;
  }

  bool receive() {
    if (channel_.written.load() == channel_.read.load()) return false;
    if (channel_.type != static_cast<std::int32_t>(message_.type) ||
        channel_.count != message_.count) {
      channel_.mismatch.store(1);
      comm_.segment->ring();
      return false;
    }
    if (channel_.bytes != 0) {
      std::memcpy(static_cast<unsigned char*>(view(message_.data)) + moved_, channel_.data,
                  channel_.bytes);
    }
    moved_ += channel_.bytes;
    done_ = moved_ == bytes_;
    channel_.read.fetch_add(1);
    comm_.segment->ring();
    return true;
  }

  ncclComm& comm_;
  Message message_;
  Channel& channel_;
  std::size_t bytes_;
  std::size_t moved_ = 0;
  bool begun_ = false;
  bool done_ = false;
};

}  // namespace

std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "ncclAllReduce";
    case Kind::reduce:
      return "ncclReduce";
    case Kind::reduce_scatter:
      return "ncclReduceScatter";
    case Kind::all_gather:
      return "ncclAllGather";
    case Kind::broadcast:
      return "ncclBroadcast";
  }
  return "";
}

void Collective::check(const ncclComm& comm) const {
  const std::size_t bytes = count * size_of(type);
  const std::size_t all = bytes * static_cast<std::size_t>(comm.size);
  const bool is_root = comm.rank == root;
  const std::string name = name_of(kind);
  if (kind != Kind::broadcast || is_root) {
    check_reachable(name.c_str(), "sendbuff", comm.device, send,
                    kind == Kind::reduce_scatter ? all : bytes);
  }
  if (kind != Kind::reduce || is_root) {
    check_reachable(name.c_str(), "recvbuff", comm.device, recv,
                    kind == Kind::all_gather ? all : bytes);
  }
}

void run_collective(ncclComm& comm, const Collective& collective) {
  collective.check(comm);  // again: its memory may have been freed by now
  comm.segment->rank(comm.rank).operation = {
      .kind = static_cast<std::int32_t>(collective.kind),
      .type = static_cast<std::int32_t>(collective.type),
      .reduction = static_cast<std::int32_t>(collective.reduction),
      .root = collective.root,
      .count = collective.count};
  Pieces pieces(comm, collective);
  std::size_t begin = 0;
  do {  // once even for nothing: the ranks compare what they do
    const std::size_t count = std::min(pieces.size(), collective.count - begin);
    pieces.write(begin, count);
    if (!meet(comm)) return;
    if (begin == 0 && !same_everywhere(comm)) return;
    pieces.read(begin, count);
    if (!meet(comm)) return;
    begin += count;
  } while (begin < collective.count);
}

void Message::check(const ncclComm& comm) const {
  check_reachable(sends ? "ncclSend" : "ncclRecv", "buffer", comm.device, data,
                  count * size_of(type));
}

void run_messages(ncclComm& comm, const std::vector<Message>& messages) {
  std::vector<Transfer> transfers;
  for (const Message& message : messages) {
    message.check(comm);
    transfers.emplace_back(comm, message);
  }
  // Messages between the same two ranks in the same direction go in their order.
  const auto is_first = [&](std::size_t i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!transfers[j].done() && transfers[j].same_way(transfers[i])) return false;
    }
    return true;
  };
  bool differ = false;
  // Moves what can be moved; true when there is nothing left to wait for.
  const auto step = [&] {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0; i < transfers.size(); ++i) {
        if (transfers[i].done() || !is_first(i)) continue;
        moved = transfers[i].progress() || moved;
        differ = differ || transfers[i].mismatch();
      }
    }
    return differ ||
           std::all_of(transfers.begin(), transfers.end(), [](const auto& t) { return t.done(); });
  };
  comm.segment->wait(step, [&] { return comm.stopped(); });
  if (differ) {
    comm.set_state(ncclInvalidUsage, "ncclSend and ncclRecv differ in count or type");
  }
}

void hang(ncclComm& comm) {
  comm.segment->wait([] { return false; }, [&] { return comm.stopped(); });
}

}  // namespace lockstep::fake
