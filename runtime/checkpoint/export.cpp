// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/runtime/checkpoint_tools.h"
#include "runtime/checkpoint/json.h"
#include "runtime/checkpoint/restore.h"
#include "runtime/checkpoint/tools.h"
#include "runtime/checkpoint/weights.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& operation, const fs::path& path, int error) {
  throw StorageError(
      operation + " " + path.string() + ": " + std::generic_category().message(error),
      "check the folder's permissions and the free space",
      error == EACCES || error == EROFS ? Outcome::config : Outcome::failed_elsewhere);
}

/// A file that gets its name when it is whole.
class WholeFile {
 public:
  explicit WholeFile(fs::path path)
      : path_(std::move(path)), temporary_(path_.string() + "." + random_hex(4) + ".part") {
    file_.open(temporary_, std::ios::binary | std::ios::trunc);
    if (!file_) fail("create", temporary_, errno);
  }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile() {
    std::error_code ignored;
    fs::remove(temporary_, ignored);
  }

  void write(std::span<const std::byte> bytes) {
    file_.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    if (!file_) fail("write", temporary_, errno);
  }

  void finish() {
    file_.close();
    if (!file_) fail("write", temporary_, errno);
    std::error_code error;
    fs::rename(temporary_, path_, error);
    if (error) fail("rename", temporary_, error.value());
  }

 private:
  fs::path path_;
  fs::path temporary_;
  std::ofstream file_;
};

/// The header of a safetensors file: its length in 8 bytes, then JSON, padded with blanks.
std::string safetensors_header(const std::vector<const TensorLine*>& tensors) {
  Json json;
  json["__metadata__"] = {{"format", "pt"}};
  std::uint64_t offset = 0;
  for (const TensorLine* tensor : tensors) {
    const std::uint64_t end =
        offset + static_cast<std::uint64_t>(elements_of(tensor->shape)) * sizeof(float);
    json[tensor->name] = {
        {"dtype", "F32"}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = to_text(json);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length =
      std::bit_cast<std::array<char, sizeof(std::uint64_t)>>(std::uint64_t{text.size()});
  return std::string(length.data(), length.size()) + text;
}

}  // namespace

ExportResult export_commit(ObjectStore& store, const fs::path& folder,
                           std::optional<std::uint64_t> step) {
  const FoundCommit found = find_commit(store, step);
  const std::string& config = found.manifest.state.model;
  if (config.empty()) {
    throw DataError("the checkpoint of step " + std::to_string(found.commit.step) +
                        " does not say how its model is configured",
                    "only checkpoints of `lockstep train` can be exported");
  }
  std::vector<const TensorLine*> tensors;
  for (const TensorLine& tensor : found.manifest.tensors) {
    if (is_weight_type(tensor.dtype)) tensors.push_back(&tensor);
  }
  CommitReader reader(store, found.manifest);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail("make folder", folder, error.value());

  ExportResult result{.commit = found.commit,
                      .weights = folder / "model.safetensors",
                      .config = folder / "config.json",
                      .tensors = tensors.size()};
  WholeFile weights(result.weights);
  const std::string header = safetensors_header(tensors);
  weights.write(std::as_bytes(std::span(header)));
  for (const TensorLine* tensor : tensors)
    weights.write(little_endian(read_weight(reader, *tensor)));
  weights.finish();
  WholeFile configuration(result.config);
  configuration.write(std::as_bytes(std::span(config)));
  configuration.finish();
  return result;
}

}  // namespace lockstep
