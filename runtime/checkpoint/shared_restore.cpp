// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/shared_restore.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/kernels.h"
#include "lockstep/collectives/agree.h"
#include "lockstep/core/copy.h"
#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/checkpoint/commit_index.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/restore.h"

namespace lockstep {
namespace {

// What is read by one request and sent at once: whole blocks, since only those can be checked.
constexpr std::uint64_t kPieceBytes = 2 * kBlockBytes;
// Bytes that nobody wants are read along where a request of its own would cost more.
constexpr std::uint64_t kMostUnwanted = std::uint64_t{1} << 20U;

/// A block of a dataset.
struct Block {
  const Fragment* fragment = nullptr;
  std::uint64_t index = 0;

  std::uint64_t begin() const { return index * kBlockBytes; }  // in the dataset, bytes
  std::uint64_t end() const { return std::min(begin() + kBlockBytes, fragment->bytes); }
};

/// Bytes [begin, end) of a shard.
struct Piece {
  std::size_t shard = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<Block> blocks;
};

/// A tensor of this rank that a dataset holds something of.
struct Wanted {
  const Tensor* target = nullptr;
  std::vector<CopyRun> runs;
};
using WantedOf = std::map<const Fragment*, std::vector<Wanted>>;

/// Which datasets are read, the same on every rank: those that some rank may want something of.
std::vector<Piece> cut_into_pieces(const CommitIndex& index, const std::vector<CommitPart>& parts) {
  std::vector<std::vector<const Fragment*>> read(index.shards().size());
  for (const CommitPart& part : parts) read[part.shard].push_back(part.fragment);
  std::vector<Piece> pieces;
  for (std::size_t shard = 0; shard < read.size(); ++shard) {
    std::vector<const Fragment*>& fragments = read[shard];
    std::sort(fragments.begin(), fragments.end(),
              [](const Fragment* a, const Fragment* b) { return a->offset < b->offset; });
    fragments.erase(std::unique(fragments.begin(), fragments.end()), fragments.end());
    bool is_first = true;
    for (const Fragment* fragment : fragments) {
      for (std::uint64_t i = 0; i < fragment->crcs.size(); ++i) {
        const Block block{.fragment = fragment, .index = i};
        const std::uint64_t begin = fragment->offset + block.begin();
        const std::uint64_t end = fragment->offset + block.end();
        if (std::exchange(is_first, false) || end - pieces.back().begin > kPieceBytes ||
            begin - pieces.back().end > kMostUnwanted) {
          pieces.push_back({.shard = shard, .begin = begin, .end = begin, .blocks = {}});
        }
        pieces.back().end = end;
        pieces.back().blocks.push_back(block);
      }
    }
  }
  return pieces;
}

/// Copies elements that are consecutive in both; `from` is on the host.
void copy_elements(const std::byte* from, DType saved, const Tensor& target, std::uint64_t first,
                   std::uint64_t count) {
  const std::size_t width = size_of(target.dtype());
  std::byte* to = static_cast<std::byte*>(target.data()) + first * width;
  const bool on_host = target.device().kind == DeviceKind::cpu;
  if (on_host && saved == target.dtype()) {
    std::memcpy(to, from, count * width);
    return;
  }
  const Shape shape = {static_cast<std::int64_t>(count)};
  const Tensor staged = on_host ? Tensor::borrow(to, shape, target.dtype(), Device{})
                                : Tensor(Device{}, shape, target.dtype());
  if (saved == target.dtype()) {
    std::memcpy(staged.data(), from, count * width);
  } else {
    // Between two narrow types by way of f32.
    std::vector<float> wide(count);
    kernels::convert_elements(from, saved, wide.data(), DType::f32, count);
    kernels::convert_elements(wide.data(), DType::f32, staged.data(), target.dtype(), count);
  }
  if (!on_host) copy_now(staged, Tensor::borrow(to, shape, target.dtype(), target.device()));
}

class SharedRestore {
 public:
  SharedRestore(Communicator& world, ObjectStore& store, const Manifest& manifest)
      : world_(world), store_(store), manifest_(manifest) {}

  std::optional<FoundDamage> run(const StateDict& state) {
    std::vector<OpenShard> shards;
    if (auto damage = open(shards)) return damage;
    const CommitIndex index(manifest_, std::move(shards));
    WantedOf wanted;
    std::vector<Piece> pieces;
    if (auto damage = settle([&] { pieces = plan(index, state, wanted); })) return damage;
    check_same(pieces);
    const auto ranks = static_cast<std::size_t>(world_.size());
    for (std::size_t first = 0; first < pieces.size(); first += ranks) {
      const std::size_t end = std::min(first + ranks, pieces.size());
      if (auto damage = pass_round(index, pieces, first, end, wanted)) return damage;
    }
    return std::nullopt;
  }

 private:
  bool is_mine(std::size_t number) const {
    return number % static_cast<std::size_t>(world_.size()) ==
           static_cast<std::size_t>(world_.rank());
  }
  int reader_of(std::size_t number) const {
    return static_cast<int>(number % static_cast<std::size_t>(world_.size()));
  }

  /// Runs `read` on every rank; damage that one met.
  std::optional<FoundDamage> settle(const std::function<void()>& read) {
    std::exception_ptr failure;
    std::string mine;
    try {
      read();
    } catch (const DamageError& error) {
      mine = error.damage().what == kMissing ? "-" : "+";
      mine += error.what();
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    // One number a round; the texts only where there is something to tell.
    if (!any(world_, failure || !mine.empty())) return std::nullopt;
    agree(world_, "checkpoint load", [&] {
      if (failure) std::rethrow_exception(failure);
    });
    const std::vector<std::string> texts = gather_text(world_, mine);
    const auto found = std::find_if(texts.begin(), texts.end(),
                                    [](const std::string& text) { return !text.empty(); });
    return FoundDamage{.rank = static_cast<int>(found - texts.begin()),
                       .what = found->substr(1),
                       .is_missing = found->front() == '-'};
  }

  /// The heads, which all ranks need whole.
  std::optional<FoundDamage> open(std::vector<OpenShard>& shards) {
    std::map<std::size_t, HeadBytes> read;
    const auto read_mine = [&] {
      for (std::size_t i = 0; i < manifest_.shards.size(); ++i) {
        if (is_mine(i)) read.emplace(i, read_head_bytes(store_, manifest_.shards[i]));
      }
    };
    if (auto damage = settle(read_mine)) return damage;
    std::vector<HeadBytes> heads;
    for (std::size_t i = 0; i < manifest_.shards.size(); ++i) heads.push_back(share(i, read));
    return settle([&] {
      for (std::size_t i = 0; i < heads.size(); ++i) {
        shards.push_back(open_shard(std::move(heads[i]), manifest_, manifest_.shards[i]));
      }
    });
  }

  HeadBytes share(std::size_t i, const std::map<std::size_t, HeadBytes>& read) {
    HeadBytes head{.object = {.key = manifest_.shards[i].key},
                   .bytes = std::vector<std::byte>(manifest_.shards[i].head_bytes)};
    if (is_mine(i)) head = read.at(i);
    head.object.etag = broadcast_text(world_, head.object.etag, reader_of(i));
    send(head.bytes, reader_of(i));
    return head;
  }

  void send(std::span<std::byte> bytes, int root) {
    const Tensor all = Tensor::borrow(bytes.data(), {static_cast<std::int64_t>(bytes.size())},
                                      DType::u8, Device{});
    world_.host().broadcast(all, root).wait();
  }

  std::vector<Piece> plan(const CommitIndex& index, const StateDict& state, WantedOf& wanted) {
    std::vector<CommitPart> all;
    for (const RestoredTensor& tensor : restored_tensors(manifest_, state)) {
      const Tensor& target = tensor.entry->tensor;
      const StateKind source = source_of(*tensor.line, tensor.entry->kind, target.dtype());
      for (CommitPart& part : index.find(*tensor.line, source, tensor.run)) {
        wanted[part.fragment].push_back({.target = &target, .runs = std::move(part.runs)});
      }
      const FlatRun whole{.start = 0,
                          .length = static_cast<std::uint64_t>(elements_of(tensor.line->shape))};
      for (CommitPart& part : index.find(*tensor.line, source, whole)) {
        all.push_back({.shard = part.shard, .fragment = part.fragment, .runs = {}});
      }
    }
    return cut_into_pieces(index, all);
  }

  void check_same(const std::vector<Piece>& pieces) {
    std::string text;
    for (const Piece& piece : pieces) {
      text += std::to_string(piece.shard) + " " + std::to_string(piece.begin) + " " +
              std::to_string(piece.end) + "\n";
    }
    const std::vector<std::string> hashes = gather_text(world_, to_hex(sha256(text)));
    const auto other = std::find_if(hashes.begin(), hashes.end(),
                                    [&](const std::string& hash) { return hash != hashes[0]; });
    if (other == hashes.end()) return;
    throw UsageError("checkpoint load: rank " + std::to_string(other - hashes.begin()) +
                         " loads other tensors than rank 0",
                     "call load with the same names and types on every rank");
  }

  /// Each rank reads one piece, then each sends its own.
  std::optional<FoundDamage> pass_round(const CommitIndex& index, const std::vector<Piece>& pieces,
                                        std::size_t first, std::size_t end,
                                        const WantedOf& wanted) {
    const std::size_t mine = first + static_cast<std::size_t>(world_.rank());
    const auto read = [&] {
      if (mine < end) read_piece(index, pieces[mine]);
    };
    if (auto damage = settle(read)) return damage;
    for (std::size_t i = first; i < end; ++i) {
      std::vector<std::byte>& bytes = i == mine ? own_ : others_;
      bytes.resize(pieces[i].end - pieces[i].begin);
      send(bytes, reader_of(i));
      for (const Block& block : pieces[i].blocks) {
        const auto found = wanted.find(block.fragment);
        if (found == wanted.end()) continue;
        const std::byte* at =
            bytes.data() + (block.fragment->offset + block.begin() - pieces[i].begin);
        for (const Wanted& each : found->second) copy_block(block, at, each);
      }
    }
    return std::nullopt;
  }

  void read_piece(const CommitIndex& index, const Piece& piece) {
    const SeenObject& object = index.shards()[piece.shard].object;
    own_.resize(piece.end - piece.begin);
    // A second read tells a fault on the way from a fault at rest.
    for (int attempt = 0;; ++attempt) {
      check_whole(store_.read(object.key, piece.begin, own_, object.etag), own_.size(), object);
      const auto wrong = std::find_if(piece.blocks.begin(), piece.blocks.end(), [&](auto& block) {
        const std::uint64_t at = block.fragment->offset + block.begin() - piece.begin;
        const std::span bytes = std::span(own_).subspan(at, block.end() - block.begin());
        return crc32c(bytes) != block.fragment->crcs[block.index];
      });
      if (wrong == piece.blocks.end()) return;
      if (attempt > 0) {
        throw DamageError({.object = object.key,
                           .dataset = wrong->fragment->path,
                           .block = wrong->index,
                           .what = "the block's CRC32C is wrong"});
      }
    }
  }

  static void copy_block(const Block& block, const std::byte* bytes, const Wanted& wanted) {
    const std::uint64_t width = size_of(block.fragment->dtype);
    const std::uint64_t begin = block.begin() / width;
    const std::uint64_t end = block.end() / width;
    auto run = std::partition_point(
        wanted.runs.begin(), wanted.runs.end(),
        [&](const CopyRun& each) { return each.source + each.length <= begin; });
    for (; run != wanted.runs.end() && run->source < end; ++run) {
      const std::uint64_t from = std::max(run->source, begin);
      const std::uint64_t to = std::min(run->source + run->length, end);
      copy_elements(bytes + (from - begin) * width, block.fragment->dtype, *wanted.target,
                    run->target + (from - run->source), to - from);
    }
  }

  Communicator& world_;
  ObjectStore& store_;
  const Manifest& manifest_;
  std::vector<std::byte> own_;     // the piece that this rank has read
  std::vector<std::byte> others_;  // one that another has
};

}  // namespace

std::optional<FoundDamage> restore_shared(Communicator& world, ObjectStore& store,
                                          const Manifest& manifest, const StateDict& state) {
  return SharedRestore(world, store, manifest).run(state);
}

}  // namespace lockstep
