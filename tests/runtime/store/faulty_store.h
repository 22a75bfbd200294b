// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/runtime/object_store.h"

namespace lockstep::testing {

enum class Fault : std::uint8_t {
  error,        // the call does nothing and throws StorageError
  lost_answer,  // the call does its work and throws StorageError
  half_write,   // a piece of an object is half written, then StorageError
  no_memory,    // the call does nothing and throws std::bad_alloc
  exit_before,  // the process is gone before the call
  exit_after,   // the process is gone after the call
};

/// A store in which the n-th call fails. Calls of its writers count too.
class FaultyStore final : public ObjectStore {
 public:
  FaultyStore(ObjectStore& inner, std::int64_t failing_call, Fault fault)
      : inner_(inner), failing_call_(failing_call), fault_(fault) {}

  static constexpr int kExitStatus = 86;

  /// The n-th call from now on fails. Not while calls are made.
  void arm(std::int64_t n) { failing_call_ = calls_ + n; }

  /// What happens elsewhere after a create_if_absent of this key.
  std::function<void(std::string_view)> after_create = {};
  /// After a read of so many bytes of this key, from an offset or the beginning.
  std::function<void(std::string_view, std::uint64_t)> after_read = {};

  std::int64_t calls() const { return calls_; }
  bool has_failed() const { return calls_ >= failing_call_; }

  std::string uri() const override { return inner_.uri(); }
  std::optional<std::string> read(std::string_view key) override {
    return guarded([&] { return inner_.read(key); });
  }
  std::optional<std::size_t> read(std::string_view key, std::uint64_t offset,
                                  std::span<std::byte> into, std::string_view etag) override {
    const auto got = guarded([&] { return inner_.read(key, offset, into, etag); });
    if (after_read) after_read(key, got.value_or(0));
    return got;
  }
  std::optional<ObjectInfo> stat(std::string_view key) override {
    return guarded([&] { return inner_.stat(key); });
  }
  Creation create_if_absent(std::string_view key, std::string_view bytes,
                            std::uint64_t epoch) override {
    const Creation made = guarded([&] { return inner_.create_if_absent(key, bytes, epoch); });
    if (after_create) after_create(key);
    return made;
  }
  std::unique_ptr<ObjectWriter> create(std::string_view key, std::uint64_t size,
                                       std::uint64_t epoch) override {
    return guarded([&]() -> std::unique_ptr<ObjectWriter> {
      return std::make_unique<Writer>(*this, inner_.create(key, size, epoch));
    });
  }
  std::vector<ObjectInfo> list(std::string_view prefix) override {
    return guarded([&] { return inner_.list(prefix); });
  }
  void remove(std::string_view key) override {
    guarded([&] {
      inner_.remove(key);
      return 0;
    });
  }
  std::vector<UnfinishedObject> unfinished(std::string_view prefix) override {
    return guarded([&] { return inner_.unfinished(prefix); });
  }
  void abandon(const UnfinishedObject& object) override {
    guarded([&] {
      inner_.abandon(object);
      return 0;
    });
  }

 private:
  class Writer final : public ObjectWriter {
   public:
    Writer(FaultyStore& store, std::unique_ptr<ObjectWriter> inner)
        : store_(store), inner_(std::move(inner)) {}
    void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
      const bool half = store_.fault_ == Fault::half_write;
      store_.guarded(
          [&] {
            inner_->write(offset, bytes);
            return 0;
          },
          [&] {
            if (half) inner_->write(offset, bytes.first(bytes.size() / 2));
          });
    }
    Creation commit() override {
      return store_.guarded([&] { return inner_->commit(); });
    }

   private:
    FaultyStore& store_;
    std::unique_ptr<ObjectWriter> inner_;
  };

  template <typename Call>
  std::invoke_result_t<Call> guarded(const Call& call) {
    return guarded(call, [] {});
  }

  template <typename Call, typename Instead>
  std::invoke_result_t<Call> guarded(const Call& call, const Instead& instead) {
    if (++calls_ != failing_call_) return call();
    if (fault_ == Fault::exit_before) _exit(kExitStatus);
    if (fault_ == Fault::lost_answer || fault_ == Fault::exit_after) call();
    if (fault_ == Fault::exit_after) _exit(kExitStatus);
    instead();
    if (fault_ == Fault::no_memory) throw std::bad_alloc();
    throw StorageError("injected fault in call " + std::to_string(failing_call_), "none");
  }

  ObjectStore& inner_;
  std::int64_t failing_call_;
  Fault fault_;
  std::atomic<std::int64_t> calls_{0};
};

}  // namespace lockstep::testing
