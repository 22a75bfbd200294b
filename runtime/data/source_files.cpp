// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <system_error>

#include "lockstep/core/error.h"
#include "runtime/data/source.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void collect(const SourceRequest& request, const fs::path& folder, const std::string& prefix,
             std::string_view suffix, std::vector<SourceFile>& files) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) refuse_source(request, "cannot read the folder " + folder.string(), error.message());
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) continue;
    const bool link = entry.is_symlink(error);
    const fs::file_status target = entry.status(error);
    if (link && !fs::exists(target)) {
      refuse_source(request, "link " + entry.path().string() + " points to nothing",
                    "remove or mend the link");
    }
    if (fs::is_regular_file(target)) {
      if (name.ends_with(suffix)) files.push_back({prefix + name, entry.path()});
    } else if (fs::is_directory(target) && !link) {
      collect(request, entry.path(), prefix + name + "/", suffix, files);
    }
  }
}

}  // namespace

void refuse_source(const SourceRequest& request, const std::string& what, const std::string& hint) {
  throw ConfigError(request.key + ": " + what, hint);
}

std::vector<SourceFile> files_of_folder(const SourceRequest& request, std::string_view suffix) {
  std::vector<SourceFile> files;
  collect(request, request.path, "", suffix, files);
  // Byte order, as unsigned bytes.
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.name < b.name; });
  return files;
}

void hold_back_tail(SourceReading& reading) {
  const std::int64_t tail = reading.train.size() / 20;
  const std::int64_t rest = reading.train.size() - tail;
  reading.held_back = reading.train.slice(rest, tail);
  reading.train = reading.train.slice(0, rest);
}

}  // namespace lockstep
