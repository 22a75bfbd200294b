// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/hdf5.h"

#include <array>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::mutex& library_mutex() {
  static std::mutex mutex;
  return mutex;
}

herr_t keep_first(unsigned number, const H5E_error2_t* error, void* text) {
  if (number == 0 && error->desc) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

[[noreturn]] void fail(const std::string& what) {
  std::string cause;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &cause);
  H5Eclear2(H5E_DEFAULT);
  throw DataError("HDF5: " + what + (cause.empty() ? "" : ": " + cause),
                  "the shard is damaged or was written by another program");
}

/// An IEEE float with other field widths.
Hdf5Id narrow_float(std::size_t exponent_bits, std::size_t mantissa_bits, std::size_t bias) {
  Hdf5Id type = owned(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, "copy a type");
  check(H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits),
        "set the fields of a type");
  check(H5Tset_precision(type.get(), 16), "set the precision of a type");
  check(H5Tset_size(type.get(), 2), "set the size of a type");
  check(H5Tset_ebias(type.get(), bias), "set the bias of a type");
  return type;
}

template <typename T>
void write_list(hid_t object, const char* name, hid_t file, hid_t memory,
                const std::vector<T>& values) {
  const hsize_t extent = values.size();
  const Hdf5Id space = owned(H5Screate_simple(1, &extent, nullptr), H5Sclose, name);
  const Hdf5Id attribute =
      owned(H5Acreate2(object, name, file, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, name);
  // HDF5 wants a pointer even where there is nothing to write.
  const T nothing = 0;
  check(H5Awrite(attribute.get(), memory, values.empty() ? &nothing : values.data()), name);
}

Hdf5Id open_attribute(hid_t object, const char* name) {
  return owned(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, name);
}

template <typename T>
std::vector<T> read_list(hid_t object, const char* name, hid_t file, hid_t memory, int rank) {
  const Hdf5Id attribute = open_attribute(object, name);
  const Hdf5Id type = owned(H5Aget_type(attribute.get()), H5Tclose, name);
  const Hdf5Id space = owned(H5Aget_space(attribute.get()), H5Sclose, name);
  if (H5Tequal(type.get(), file) <= 0) fail(std::string(name) + " has another type");
  if (H5Sget_simple_extent_ndims(space.get()) != rank) {
    fail(std::string(name) + " has another shape");
  }
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (count < 0) fail(std::string(name) + " has no extent");
  std::vector<T> values(static_cast<std::size_t>(count));
  if (!values.empty()) check(H5Aread(attribute.get(), memory, values.data()), name);
  return values;
}

}  // namespace

Hdf5Session::Hdf5Session() : lock_(library_mutex()) {
  H5open();
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Session::~Hdf5Session() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }

hid_t checked(hid_t result, const char* what) {
  if (result < 0) fail(what);
  return result;
}

void check(herr_t result, const char* what) {
  if (result < 0) fail(what);
}

Hdf5Id owned(hid_t result, Hdf5Id::Closer closer, const char* what) {
  return {checked(result, what), closer};
}

Hdf5Id file_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return narrow_float(5, 10, 15);
    case DType::bf16:
      return narrow_float(8, 7, 127);
    case DType::f32:
      return owned(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, "copy a type");
    case DType::i64:
      return owned(H5Tcopy(H5T_STD_I64LE), H5Tclose, "copy a type");
    case DType::u8:
      return owned(H5Tcopy(H5T_STD_U8LE), H5Tclose, "copy a type");
    case DType::f64:
    case DType::i32:
      break;
  }
  throw UsageError(std::string("tensors of type ") + to_string(dtype) + " cannot be saved",
                   "use f32, bf16, f16, i64 or u8");
}

std::optional<DType> dtype_of(hid_t type) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i64, DType::u8}) {
    if (H5Tequal(type, file_type(dtype).get()) > 0) return dtype;
  }
  return std::nullopt;
}

void write_attribute(hid_t object, const char* name, const std::string& text) {
  const Hdf5Id type = owned(H5Tcopy(H5T_C_S1), H5Tclose, name);
  check(H5Tset_size(type.get(), text.size()), name);
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), name);
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), name);
  const Hdf5Id space = owned(H5Screate(H5S_SCALAR), H5Sclose, name);
  const Hdf5Id attribute = owned(
      H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, name);
  check(H5Awrite(attribute.get(), type.get(), text.data()), name);
}

void write_attribute(hid_t object, const char* name, std::uint64_t value) {
  const Hdf5Id space = owned(H5Screate(H5S_SCALAR), H5Sclose, name);
  const Hdf5Id attribute =
      owned(H5Acreate2(object, name, H5T_STD_U64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
            H5Aclose, name);
  check(H5Awrite(attribute.get(), H5T_NATIVE_UINT64, &value), name);
}

void write_attribute(hid_t object, const char* name, const std::vector<std::uint64_t>& values) {
  write_list(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, values);
}

void write_attribute(hid_t object, const char* name, const std::vector<std::uint32_t>& values) {
  write_list(object, name, H5T_STD_U32LE, H5T_NATIVE_UINT32, values);
}

bool has_attribute(hid_t object, const char* name) {
  const htri_t found = H5Aexists(object, name);
  check(found, name);
  return found > 0;
}

std::string read_text(hid_t object, const char* name) {
  const Hdf5Id attribute = open_attribute(object, name);
  const Hdf5Id type = owned(H5Aget_type(attribute.get()), H5Tclose, name);
  const Hdf5Id space = owned(H5Aget_space(attribute.get()), H5Sclose, name);
  const bool fixed = H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0;
  if (!fixed || H5Sget_simple_extent_npoints(space.get()) != 1) {
    fail(std::string(name) + " is no fixed-length string");
  }
  std::string text(H5Tget_size(type.get()), '\0');
  check(H5Aread(attribute.get(), type.get(), text.data()), name);
  return text;
}

std::uint64_t read_integer(hid_t object, const char* name) {
  return read_list<std::uint64_t>(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, 0).at(0);
}

std::vector<std::uint64_t> read_integers(hid_t object, const char* name) {
  return read_list<std::uint64_t>(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, 1);
}

std::vector<std::uint32_t> read_checksums(hid_t object, const char* name) {
  return read_list<std::uint32_t>(object, name, H5T_STD_U32LE, H5T_NATIVE_UINT32, 1);
}

}  // namespace lockstep
