// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/head.h"
#include "runtime/checkpoint/head_driver.h"
#include "runtime/checkpoint/record.h"

namespace lockstep {
namespace {

constexpr std::array kGroups = {"/param",   "/optim",   "/optim/master",
                                "/optim/m", "/optim/v", "/state"};

// Metadata has the same size wherever the data lies, so a far start leaves it all the room.
constexpr std::uint64_t kFar = std::uint64_t{1} << 40;

void make_groups(hid_t file) {
  const Hdf5Id options = owned(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "create a list");
  check(H5Pset_obj_track_times(options.get(), 0), "turn off times");
  for (const char* path : kGroups) {
    owned(H5Gcreate2(file, path, H5P_DEFAULT, options.get(), H5P_DEFAULT), H5Gclose, path);
  }
}

Hdf5Id dataset_space(const Fragment& fragment) {
  if (fragment.flat) {
    const hsize_t length = fragment.flat->length;
    return owned(H5Screate_simple(1, &length, nullptr), H5Sclose, "create a space");
  }
  const std::vector<hsize_t> dims(fragment.box.count.begin(), fragment.box.count.end());
  if (dims.empty()) return owned(H5Screate(H5S_SCALAR), H5Sclose, "create a space");
  return owned(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose,
               "create a space");
}

void make_dataset(hid_t file, const Fragment& fragment, bool check_offset) {
  const char* path = fragment.path.c_str();
  const Hdf5Id options = owned(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, path);
  check(H5Pset_layout(options.get(), H5D_CONTIGUOUS), path);
  check(H5Pset_alloc_time(options.get(), H5D_ALLOC_TIME_EARLY), path);
  check(H5Pset_fill_time(options.get(), H5D_FILL_TIME_NEVER), path);
  check(H5Pset_obj_track_times(options.get(), 0), path);
  const Hdf5Id space = dataset_space(fragment);
  const Hdf5Id type = file_type(fragment.dtype);
  const Hdf5Id dataset = owned(
      H5Dcreate2(file, path, type.get(), space.get(), H5P_DEFAULT, options.get(), H5P_DEFAULT),
      H5Dclose, path);
  write_attribute(dataset.get(), "ls_kind", fragment.kind);
  if (fragment.kind != "state") {
    std::vector<std::uint64_t> box = fragment.box.start;
    box.insert(box.end(), fragment.box.count.begin(), fragment.box.count.end());
    write_attribute(dataset.get(), "ls_gshape", fragment.gshape);
    write_attribute(dataset.get(), "ls_box", box);
    if (fragment.flat) {
      write_attribute(dataset.get(), "ls_flat",
                      std::vector{fragment.flat->start, fragment.flat->length});
    }
    if (fragment.replica) write_attribute(dataset.get(), "ls_replica", *fragment.replica);
  }
  write_attribute(dataset.get(), "ls_crc", fragment.crcs);
  if (check_offset && H5Dget_offset(dataset.get()) != fragment.offset) {
    throw UsageError("dataset " + fragment.path + " was placed at " +
                         std::to_string(H5Dget_offset(dataset.get())) + ", planned at " +
                         std::to_string(fragment.offset),
                     "this HDF5 library ignores the driver's allocation; use 1.10");
  }
}

void fill(HeadImage& image, const ShardHead& head) {
  const Hdf5Session session;
  const Hdf5Id access = head_access(image);
  const Hdf5Id options = owned(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "create a list");
  check(H5Pset_file_space_strategy(options.get(), H5F_FSPACE_STRATEGY_NONE, 0, 1),
        "set the space strategy");
  Hdf5Id file =
      owned(H5Fcreate("shard", H5F_ACC_TRUNC, options.get(), access.get()), H5Fclose, "create");
  make_groups(file.get());
  for (const Fragment& fragment : head.fragments) {
    make_dataset(file.get(), fragment, !image.growing);
  }
  const Hdf5Id root = owned(H5Gopen2(file.get(), "/", H5P_DEFAULT), H5Gclose, "open the root");
  write_attribute(root.get(), "ls_format", std::string("lockstep-checkpoint"));
  write_attribute(root.get(), "ls_major", kFormatMajor);
  write_attribute(root.get(), "ls_minor", kFormatMinor);
  write_attribute(root.get(), "ls_job", head.job);
  write_attribute(root.get(), "ls_epoch", head.epoch);
  write_attribute(root.get(), "ls_step", head.step);
  write_attribute(root.get(), "ls_writer", head.writer);
  write_attribute(root.get(), "ls_mesh", std::vector{head.mesh.dp, head.mesh.tp});
  write_attribute(root.get(), "ls_plan_sha256", head.plan_sha256);
  write_attribute(root.get(), "ls_head_bytes", head.head_bytes);
  write_attribute(root.get(), "ls_total_bytes", head.total_bytes);
  write_attribute(root.get(), "ls_block", kBlockBytes);
  write_attribute(root.get(), "ls_complete", std::uint64_t{1});
  check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), "flush");
}

}  // namespace

std::uint64_t head_size(const std::vector<Fragment>& fragments) {
  HeadImage image{
      .bytes = {}, .head_end = 0, .data_start = kFar, .file_end = kFar, .growing = true};
  ShardHead head;
  head.job = std::string(36, '0');
  head.plan_sha256 = std::string(64, '0');
  head.fragments = fragments;
  for (Fragment& fragment : head.fragments) fragment.crcs.assign(blocks_of(fragment), 0);
  fill(image, head);
  return (image.head_end + kHeadUnit - 1) / kHeadUnit * kHeadUnit;
}

std::vector<std::byte> build_head(const ShardHead& head) {
  HeadImage image{.bytes = {},
                  .head_end = 0,
                  .data_start = head.head_bytes,
                  .file_end = head.head_bytes,
                  .growing = false};
  fill(image, head);
  image.bytes.resize(head.head_bytes);
  return std::move(image.bytes);
}

}  // namespace lockstep
