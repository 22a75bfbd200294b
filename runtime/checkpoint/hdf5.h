// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/tensor.h"

namespace lockstep {

/// While one lives, this thread alone is in the HDF5 library, and the library prints nothing.
///
/// The library keeps global state; ours is the one lock around our uses of it. Everything in this
/// header and every H5… call needs a session.
class Hdf5Session {
 public:
  Hdf5Session();
  ~Hdf5Session();
  Hdf5Session(const Hdf5Session&) = delete;
  Hdf5Session& operator=(const Hdf5Session&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

/// Owns an identifier of the library.
class Hdf5Id {
 public:
  using Closer = herr_t (*)(hid_t);
  Hdf5Id(hid_t id, Closer closer) noexcept : id_(id), closer_(closer) {}
  Hdf5Id(Hdf5Id&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), closer_(other.closer_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(closer_, other.closer_);
    return *this;
  }
  ~Hdf5Id() {
    if (id_ >= 0) closer_(id_);
  }
  hid_t get() const noexcept { return id_; }

 private:
  hid_t id_;
  Closer closer_;
};

/// Passes a result of the library through. Throws DataError with `what` and the library's own words
/// if it is negative.
hid_t checked(hid_t result, const char* what);
void check(herr_t result, const char* what);
Hdf5Id owned(hid_t result, Hdf5Id::Closer closer, const char* what);

/// The file type of a tensor type that can be saved; bf16 and f16 are floats of 16 bits.
Hdf5Id file_type(DType dtype);
/// The tensor type of a file type; nothing for others.
std::optional<DType> dtype_of(hid_t type);

// Attributes of a file, group or dataset. Readers throw DataError if one has another type or shape.

void write_attribute(hid_t object, const char* name, const std::string& text);
void write_attribute(hid_t object, const char* name, std::uint64_t value);
void write_attribute(hid_t object, const char* name, const std::vector<std::uint64_t>& values);
void write_attribute(hid_t object, const char* name, const std::vector<std::uint32_t>& values);

bool has_attribute(hid_t object, const char* name);
std::string read_text(hid_t object, const char* name);
std::uint64_t read_integer(hid_t object, const char* name);
std::vector<std::uint64_t> read_integers(hid_t object, const char* name);
std::vector<std::uint32_t> read_checksums(hid_t object, const char* name);

}  // namespace lockstep
