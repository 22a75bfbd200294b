// SPDX-License-Identifier: Apache-2.0
#include "lockstep/runtime/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/core/utc_time.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kLockWait = std::chrono::seconds(10);

std::string reason_of(int error) { return std::strerror(error); }

[[noreturn]] void refuse_write(const std::filesystem::path& path, int error) {
  throw StorageError("cannot write " + path.string() + ": " + reason_of(error),
                     "check the run folder's permissions and space");
}

std::string host_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof name - 1);
  return name;
}

void write_all(int file, const std::string& text, const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(file, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) refuse_write(path, errno);
    done += static_cast<std::size_t>(wrote);
  }
}

// Whether the disk has the file when it is replaced. Else the file outlives the process, and the
// machine only after sync_file.
enum class Disk : std::uint8_t { waited_for, not_waited_for };

// Content first, then the name: a reader sees the old file or the new one.
void replace(const std::filesystem::path& path, const std::string& text,
             Disk disk = Disk::waited_for) {
  const std::filesystem::path fresh = path.string() + "." + std::to_string(getpid()) + ".tmp";
  const int file = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) refuse_write(fresh, errno);
  try {
    write_all(file, text, fresh);
    if (disk == Disk::waited_for && fsync(file) != 0) refuse_write(fresh, errno);
  } catch (...) {
    close(file);
    unlink(fresh.c_str());
    throw;
  }
  close(file);
  if (rename(fresh.c_str(), path.c_str()) != 0) refuse_write(path, errno);
}

void sync_file(const std::filesystem::path& path) noexcept {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

// Else the job ends as its ranks have agreed, and nothing hurries them.
bool is_failure(Outcome code) {
  return code != Outcome::finished && code != Outcome::saved && code != Outcome::interrupted &&
         code != Outcome::limit;
}

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

}  // namespace

RunFolder::RunFolder(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  std::filesystem::create_directories(path_ / "cause", error);
  if (error || access(path_.c_str(), W_OK) != 0) {
    throw ConfigError("run folder " + path_.string() +
                          " cannot be written: " + (error ? error.message() : reason_of(errno)),
                      "choose another folder with --run");
  }
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) close(lock_);
}

void RunFolder::lock() {
  const std::filesystem::path file = path_ / "lock";
  lock_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) refuse_write(file, errno);
  const auto deadline = std::chrono::steady_clock::now() + kLockWait;
  while (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) refuse_write(file, errno);
    if (std::chrono::steady_clock::now() > deadline) {
      char holder[300] = "";
      const ssize_t size = pread(lock_, holder, sizeof holder - 1, 0);
      std::string who = size > 0 ? std::string(holder, static_cast<std::size_t>(size)) : "unknown";
      while (!who.empty() && who.back() == '\n') who.pop_back();
      throw ConfigError("run folder " + path_.string() + " is in use by " + who,
                        "wait for that run to end, or choose another folder with --run");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::string holder = "host " + host_name() + " process " + std::to_string(getpid()) + "\n";
  if (ftruncate(lock_, 0) != 0 ||
      pwrite(lock_, holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size())) {
    refuse_write(file, errno);
  }
}

std::filesystem::path RunFolder::result_path() const { return path_ / "result.json"; }

std::filesystem::path RunFolder::cause_path(std::int64_t attempt, int rank) const {
  return path_ / "cause" / (std::to_string(attempt) + "." + std::to_string(rank) + ".json");
}

void RunFolder::write_attempt(std::int64_t attempt, const std::vector<std::string>& hosts,
                              const std::vector<int>& process_ids) const {
  const Json json = {
      {"attempt", attempt}, {"world", hosts.size()}, {"hosts", hosts}, {"pids", process_ids}};
  replace(path_ / "attempt.json", json.dump() + "\n");
}

void RunFolder::write_result(const RunResult& result) const {
  Json json = {{"code", result.code ? Json(static_cast<int>(*result.code)) : Json(nullptr)},
               {"reason", result.reason},
               {"attempt", result.attempt}};
  if (result.code) {
    json["steps"] = result.steps;
    json["tokens"] = result.tokens;
    json["loss"] = number_or_null(result.loss);
    json["weights_sha256"] =
        result.weights_sha256.empty() ? Json(nullptr) : Json(result.weights_sha256);
    if (result.bits_broken_at_step) json["bits_broken_at_step"] = *result.bits_broken_at_step;
    json["time"] = utc_now();
  }
  const bool failed = result.code && is_failure(*result.code);
  replace(result_path(), json.dump() + "\n", failed ? Disk::not_waited_for : Disk::waited_for);
}

bool RunFolder::write_cause(std::int64_t attempt, int rank, const RunCause& cause) const noexcept {
  try {
    const Json json = {{"code", static_cast<int>(cause.code)},
                       {"kind", cause.kind},
                       {"origin_rank", cause.origin_rank},
                       {"what", cause.what},
                       {"hint", cause.hint},
                       {"time", utc_now()}};
    replace(cause_path(attempt, rank),
            json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", Disk::not_waited_for);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void RunFolder::sync_failure(std::int64_t attempt, int rank) const noexcept {
  try {
    sync_file(cause_path(attempt, rank));
    sync_file(result_path());
  } catch (const std::exception&) {
    return;  // no memory for a name
  }
}

}  // namespace lockstep
