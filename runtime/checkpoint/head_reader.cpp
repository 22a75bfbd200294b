// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/core/error.h"
#include "runtime/checkpoint/head.h"
#include "runtime/checkpoint/head_driver.h"
#include "runtime/checkpoint/keys.h"
#include "runtime/checkpoint/record.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw DataError(what, "the shard is damaged or was written by another program");
}

herr_t collect_name(hid_t /*group*/, const char* name, const H5L_info_t* /*info*/, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

std::vector<std::string> names_in(hid_t group) {
  std::vector<std::string> names;
  check(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect_name, &names),
        "list a group");
  return names;
}

/// Sizes of the dataset's space; a scalar has none.
std::vector<std::uint64_t> dims_of(hid_t dataset) {
  const Hdf5Id space = owned(H5Dget_space(dataset), H5Sclose, "open a space");
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0) refuse("the space has no rank");
  std::vector<hsize_t> dims(static_cast<std::size_t>(rank));
  if (rank > 0) check(H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr), "read a space");
  return {dims.begin(), dims.end()};
}

void read_placement(hid_t dataset, Fragment& fragment) {
  fragment.gshape = read_integers(dataset, "ls_gshape");
  const std::vector<std::uint64_t> box = read_integers(dataset, "ls_box");
  const std::size_t rank = fragment.gshape.size();
  if (box.size() != 2 * rank) refuse("ls_box does not fit ls_gshape");
  const auto middle = box.begin() + static_cast<std::ptrdiff_t>(rank);
  fragment.box = {.start = {box.begin(), middle}, .count = {middle, box.end()}};
  for (std::size_t i = 0; i < rank; ++i) {
    const std::uint64_t size = fragment.gshape[i];
    if (fragment.box.start[i] > size || fragment.box.count[i] > size - fragment.box.start[i]) {
      refuse("ls_box lies outside the tensor");
    }
  }
  if (has_attribute(dataset, "ls_flat")) {
    const std::vector<std::uint64_t> flat = read_integers(dataset, "ls_flat");
    if (flat.size() != 2) refuse("ls_flat has not two numbers");
    fragment.flat = FlatRun{.start = flat[0], .length = flat[1]};
    const std::uint64_t elements = elements_of(fragment.box);
    if (flat[0] > elements || flat[1] > elements - flat[0]) refuse("ls_flat lies outside its box");
  }
  if (has_attribute(dataset, "ls_replica")) fragment.replica = read_integer(dataset, "ls_replica");
}

Fragment read_fragment(hid_t file, const std::string& path, const std::string& kind) {
  const Hdf5Id dataset = owned(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, "open");
  Fragment fragment{.kind = read_text(dataset.get(), "ls_kind"),
                    .path = path,
                    .dtype = {},
                    .gshape = {},
                    .box = {},
                    .flat = {},
                    .replica = {},
                    .offset = 0,
                    .bytes = 0,
                    .crcs = read_checksums(dataset.get(), "ls_crc"),
                    .source = 0};
  if (fragment.kind != kind) refuse("ls_kind is " + fragment.kind);
  const Hdf5Id type = owned(H5Dget_type(dataset.get()), H5Tclose, "open a type");
  const auto dtype = dtype_of(type.get());
  if (!dtype) refuse("the type is none of a checkpoint's");
  fragment.dtype = *dtype;
  const std::vector<std::uint64_t> dims = dims_of(dataset.get());
  if (kind == "state") {
    fragment.gshape = dims;
    fragment.box = whole_box(dims);
  } else {
    read_placement(dataset.get(), fragment);
    const std::vector<std::uint64_t> wanted =
        fragment.flat ? std::vector{fragment.flat->length} : fragment.box.count;
    if (dims != wanted) refuse("the extents do not fit ls_box and ls_flat");
  }
  fragment.bytes = elements_of(fragment) * size_of(fragment.dtype);
  fragment.offset = H5Dget_offset(dataset.get());
  if (fragment.crcs.size() != blocks_of(fragment)) refuse("ls_crc has not one number a block");
  return fragment;
}

void check_layout(const ShardHead& head) {
  std::uint64_t end = head.head_bytes;
  for (const Fragment& fragment : head.fragments) {
    if (fragment.offset == HADDR_UNDEF || fragment.offset < end ||
        fragment.bytes > head.total_bytes || fragment.offset > head.total_bytes - fragment.bytes) {
      refuse("dataset " + fragment.path + " overlaps another or lies outside the shard");
    }
    end = fragment.offset + fragment.bytes;
  }
  if (end != head.total_bytes) refuse("the shard does not end with its last dataset");
}

}  // namespace

ShardHead parse_head(std::vector<std::byte> bytes, std::uint64_t file_bytes) {
  const std::uint64_t head_bytes = bytes.size();
  HeadImage image{.bytes = std::move(bytes),
                  .head_end = head_bytes,
                  .data_start = head_bytes,
                  .file_end = file_bytes,
                  .growing = false};
  const Hdf5Session session;
  const Hdf5Id access = head_access(image);
  const Hdf5Id file = owned(H5Fopen("shard", H5F_ACC_RDONLY, access.get()), H5Fclose, "open");
  const Hdf5Id root = owned(H5Gopen2(file.get(), "/", H5P_DEFAULT), H5Gclose, "open the root");
  if (read_text(root.get(), "ls_format") != "lockstep-checkpoint") {
    refuse("ls_format is not that of a checkpoint");
  }
  check_format(std::to_string(read_integer(root.get(), "ls_major")) + "." +
                   std::to_string(read_integer(root.get(), "ls_minor")),
               "the shard");
  const std::vector<std::uint64_t> mesh = read_integers(root.get(), "ls_mesh");
  if (mesh.size() != 2) refuse("ls_mesh has not two numbers");
  ShardHead head{.job = read_text(root.get(), "ls_job"),
                 .epoch = read_integer(root.get(), "ls_epoch"),
                 .step = read_integer(root.get(), "ls_step"),
                 .writer = read_integer(root.get(), "ls_writer"),
                 .mesh = {.dp = mesh[0], .tp = mesh[1], .zero = 0},
                 .plan_sha256 = read_text(root.get(), "ls_plan_sha256"),
                 .head_bytes = read_integer(root.get(), "ls_head_bytes"),
                 .total_bytes = read_integer(root.get(), "ls_total_bytes"),
                 .fragments = {}};
  if (read_integer(root.get(), "ls_complete") != 1) refuse("ls_complete is not 1");
  if (read_integer(root.get(), "ls_block") != kBlockBytes) refuse("ls_block is not 4 MiB");
  if (head.head_bytes != head_bytes || head_bytes % kHeadUnit != 0) {
    refuse("ls_head_bytes is wrong");
  }
  if (head.total_bytes != file_bytes) refuse("ls_total_bytes is not the size of the shard");
  for (const std::string kind : {"param", "master", "m", "v", "state"}) {
    const std::string parent = group_path(kind);
    const Hdf5Id group = owned(H5Gopen2(file.get(), parent.c_str(), H5P_DEFAULT), H5Gclose, "open");
    for (const std::string& name : names_in(group.get())) {
      std::string path = parent;
      path.append("/").append(name);
      try {
        head.fragments.push_back(read_fragment(file.get(), path, kind));
      } catch (const DataError& error) {
        refuse("dataset " + path + ": " + error.what());
      }
    }
  }
  std::sort(head.fragments.begin(), head.fragments.end(),
            [](const Fragment& a, const Fragment& b) { return a.offset < b.offset; });
  check_layout(head);
  return head;
}

}  // namespace lockstep
