// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/head_driver.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "runtime/checkpoint/shard_plan.h"

namespace lockstep {
namespace {

struct OpenHead {
  H5FD_t base;  // the library's part comes first
  HeadImage* image;
};

/// What an access list carries to open_head.
struct DriverInfo {
  HeadImage* image;
};

HeadImage& image_of(const H5FD_t* file) { return *reinterpret_cast<const OpenHead*>(file)->image; }

H5FD_t* open_head(const char* /*name*/, unsigned /*flags*/, hid_t access, haddr_t /*limit*/) {
  const void* info = H5Pget_driver_info(access);
  if (!info) return nullptr;
  auto file = std::make_unique<OpenHead>();
  file->base = {};
  file->image = static_cast<const DriverInfo*>(info)->image;
  return &file.release()->base;
}

herr_t close_head(H5FD_t* file) {
  delete reinterpret_cast<OpenHead*>(file);
  return 0;
}

herr_t query_head(const H5FD_t* /*file*/, unsigned long* flags) {
  if (flags) *flags = 0;
  return 0;
}

haddr_t place(H5FD_t* file, H5FD_mem_t type, hid_t /*transfer*/, hsize_t size) {
  HeadImage& image = image_of(file);
  if (type == H5FD_MEM_DRAW) {
    const std::uint64_t start = aligned_start(image.file_end, size);
    image.file_end = start + size;
    return start;
  }
  if (size > image.data_start - image.head_end) return HADDR_UNDEF;
  const std::uint64_t start = image.head_end;
  image.head_end += size;
  return start;
}

/// The library takes a file of no bytes for a new one.
haddr_t end_of_file(const H5FD_t* file, H5FD_mem_t /*type*/) {
  const HeadImage& image = image_of(file);
  return image.head_end == 0 ? 0 : image.file_end;
}
herr_t set_end_of_space(H5FD_t* /*file*/, H5FD_mem_t /*type*/, haddr_t /*end*/) { return 0; }

bool in_head(const HeadImage& image, haddr_t start, std::size_t size) {
  return start <= image.data_start && size <= image.data_start - start;
}

herr_t read_head(H5FD_t* file, H5FD_mem_t /*type*/, hid_t /*transfer*/, haddr_t start,
                 std::size_t size, void* into) {
  const HeadImage& image = image_of(file);
  if (!in_head(image, start, size)) return -1;
  // What was never written reads as zeros, as from a file.
  std::memset(into, 0, size);
  if (start < image.bytes.size()) {
    std::memcpy(into, image.bytes.data() + start, std::min(size, image.bytes.size() - start));
  }
  return 0;
}

herr_t write_head(H5FD_t* file, H5FD_mem_t type, hid_t /*transfer*/, haddr_t start,
                  std::size_t size, const void* from) {
  HeadImage& image = image_of(file);
  if (type == H5FD_MEM_DRAW || !in_head(image, start, size)) return -1;
  if (image.bytes.size() < start + size) image.bytes.resize(start + size);
  std::memcpy(image.bytes.data() + start, from, size);
  return 0;
}

H5FD_class_t make_driver() {
  // H5FD_class_t grew and was reordered after 1.10, hence by name and not by position.
  H5FD_class_t driver = {};
  driver.name = "lockstep-head";
  driver.maxaddr = HADDR_MAX;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(DriverInfo);
  driver.open = open_head;
  driver.close = close_head;
  driver.query = query_head;
  driver.alloc = place;
  driver.get_eoa = end_of_file;
  driver.set_eoa = set_end_of_space;
  driver.get_eof = end_of_file;
  driver.read = read_head;
  driver.write = write_head;
  const H5FD_mem_t one_list[] = H5FD_FLMAP_SINGLE;
  std::copy(std::begin(one_list), std::end(one_list), std::begin(driver.fl_map));
  return driver;
}

}  // namespace

Hdf5Id head_access(HeadImage& image) {
  static const H5FD_class_t driver = make_driver();
  const Hdf5Id id = owned(H5FDregister(&driver), H5FDunregister, "register the driver");
  Hdf5Id access = owned(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "create an access list");
  const DriverInfo info{.image = &image};
  check(H5Pset_driver(access.get(), id.get(), &info), "set the driver");
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V110), "set the version");
  return access;
}

}  // namespace lockstep
