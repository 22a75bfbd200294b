// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {

struct ObjectInfo {
  std::string key;
  std::uint64_t size = 0;  // bytes
  /// Changes with the object, as HTTP's of that name; without quotes. Empty where the store has
  /// none.
  std::string etag = {};
};

/// An object that is being written in pieces, or whose writer has died.
struct UnfinishedObject {
  std::string key;
  std::string id;  // of the store
};

/// An object is another than the one that was to be read.
class ObjectChangedError : public StorageError {
 public:
  ObjectChangedError(std::string_view store, std::string_view key)
      : StorageError("store " + std::string(store) + ": object " + std::string(key) +
                         " changed while it was read",
                     "something else writes there, a copy perhaps; start again when it is done") {}
};

/// What became of a conditional write.
enum class Creation : std::uint8_t {
  created,  // the object is ours and durable
  exists,   // somebody else's object has this key; nothing was changed
};

/// A new object that is written in pieces and appears, whole and durable, with commit().
///
/// Without commit() nothing ever appears, and the destructor takes away what was begun. One thread.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;

  /// Bytes from `offset` on. Pieces do not overlap and come in rising order, except that the piece
  /// at offset 0 may come last. Bytes that are never written are zero. `bytes` stay where and as
  /// they are as long as the writer lives: it may send them later, from there.
  virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  /// Once.
  virtual Creation commit() = 0;

 protected:
  ObjectWriter() = default;
};

/// Named immutable byte strings under one root. All calls from any thread.
///
/// Keys are relative, parts separated by "/", never empty, "." or ".."; else UsageError. Whatever
/// is written is durable and visible to every reader when the call returns, or it is not there at
/// all. The one primitive that writers coordinate by is create_if_absent: of many writers of one
/// key exactly one is told `created`.
///
/// Failures are StorageError, which names the store, the operation and the key; outcome config
/// where only a person can help (no permission, not a folder), else failed_elsewhere.
class ObjectStore {
 public:
  /// `file:PATH` (any POSIX file system with hard links), `s3://BUCKET/PREFIX`,
  /// `oss://BUCKET/PREFIX` (configured as docs/stores.md says) or `mem:NAME` (this process's
  /// memory; equal names are one store until the process ends). Throws ConfigError for any other
  /// scheme. Nothing is created, and nobody asked, before the first call.
  static std::unique_ptr<ObjectStore> open(std::string_view uri);

  virtual ~ObjectStore() = default;
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;

  /// For messages.
  virtual std::string uri() const = 0;

  /// The whole object; nothing if there is none.
  virtual std::optional<std::string> read(std::string_view key) = 0;
  /// Fills `into` from `offset` on. The number of bytes read: fewer than asked for only at the
  /// object's end; nothing if there is no object. Throws ObjectChangedError if `etag` is not empty
  /// and, in a store that has etags, another than the object's.
  virtual std::optional<std::size_t> read(std::string_view key, std::uint64_t offset,
                                          std::span<std::byte> into, std::string_view etag) = 0;
  std::optional<std::size_t> read(std::string_view key, std::uint64_t offset,
                                  std::span<std::byte> into) {
    return read(key, offset, into, {});
  }
  /// What is known of it; nothing if there is none.
  virtual std::optional<ObjectInfo> stat(std::string_view key) = 0;
  /// Its bytes; nothing if there is none.
  std::optional<std::uint64_t> size(std::string_view key) {
    const auto info = stat(key);
    return info ? std::optional(info->size) : std::nullopt;
  }

  /// `epoch`: of the writer, so that what a dead one left behind can be told from what a live one
  /// is writing. An answer lost on the way is found out by comparing, never by a second attempt.
  virtual Creation create_if_absent(std::string_view key, std::string_view bytes,
                                    std::uint64_t epoch) = 0;
  /// The same for a large object of `size` bytes, in pieces.
  virtual std::unique_ptr<ObjectWriter> create(std::string_view key, std::uint64_t size,
                                               std::uint64_t epoch) = 0;

  /// Objects whose key begins with `prefix`, in byte order of the key.
  virtual std::vector<ObjectInfo> list(std::string_view prefix) = 0;
  /// A missing key is no error.
  virtual void remove(std::string_view key) = 0;

  /// Objects whose create() has neither been committed nor taken back and that take up space under
  /// no key. None where list() shows such leftovers as `t/…`.
  virtual std::vector<UnfinishedObject> unfinished(std::string_view prefix) = 0;
  /// Takes one away. One that is gone is no error.
  virtual void abandon(const UnfinishedObject& object) = 0;

  /// What a person should know about the store or the way to it, since the last call.
  virtual std::vector<std::string> take_notes() { return {}; }

 protected:
  ObjectStore() = default;
};

/// Tries on keys `p/<nonce>.a` and `.b` whether create-if-absent works, and removes them. Throws
/// ConfigError with what to do where it does not: then two launches could overwrite each other.
void probe(ObjectStore& store, std::uint64_t epoch);

/// Something that was tried on a store.
struct ProbeFinding {
  std::string what;    // what should hold
  bool needed = true;  // else the store is of use without it
  bool holds = false;
  std::string error = {};  // where trying it failed
  std::string hint = {};
};

/// Tries more than probe(), on keys `p/…` that it removes: what training needs of a store. Stops
/// where nothing can be created.
std::vector<ProbeFinding> probe_report(ObjectStore& store);

}  // namespace lockstep
