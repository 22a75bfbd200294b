// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "lockstep/core/config.h"
#include "lockstep/core/error.h"
#include "lockstep/runtime/checkpoint_tools.h"
#include "tools/command.h"

namespace lockstep::tools {
namespace {

constexpr const char* kUsage =
    "usage: lockstep ckpt ls     RUN|URI                         every commit\n"
    "       lockstep ckpt show   RUN|URI [--step N]              one commit: state, tensors, "
    "shards\n"
    "       lockstep ckpt verify RUN|URI                         read and check every byte\n"
    "       lockstep ckpt export RUN|URI --to DIR [--step N]     model.safetensors and "
    "config.json\n";

// The words of a verb: one place, and flags with values.
struct Request {
  std::string place;
  std::map<std::string, std::string> flags;
};

Request parse(const std::string& verb, const Arguments& words,
              const std::vector<std::string>& allowed) {
  Request request;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    if (!word.starts_with("--")) {
      if (!request.place.empty()) {
        throw ConfigError("ckpt " + verb + ": \"" + word + "\" is one word too many", kUsage);
      }
      request.place = word;
      continue;
    }
    std::optional<std::string> value;
    if (const std::size_t equals = word.find('='); equals != std::string::npos) {
      value = word.substr(equals + 1);
      word.resize(equals);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    }
    const auto near = nearest(word, allowed);
    if (!near || *near != word) {
      throw ConfigError("ckpt " + verb + ": flag " + word + " is unknown",
                        near ? "did you mean " + *near + "?" : kUsage);
    }
    if (!value) throw ConfigError("ckpt " + verb + ": " + word + " has no value", kUsage);
    request.flags[word] = *value;
  }
  if (request.place.empty()) throw ConfigError("ckpt " + verb + ": no run is named", kUsage);
  return request;
}

std::optional<std::uint64_t> step_of(const Request& request) {
  const auto found = request.flags.find("--step");
  if (found == request.flags.end()) return std::nullopt;
  std::uint64_t step = 0;
  const std::string& text = found->second;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (code != std::errc{} || end != text.data() + text.size()) {
    throw ConfigError("--step " + text + " is no step", "give the number of a committed step");
  }
  return step;
}

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

void print_damages(const std::vector<Damage>& damages) {
  for (const Damage& damage : damages) std::printf("DAMAGED %s\n", to_string(damage).c_str());
}

int list(const Arguments& words) {
  const Request request = parse("ls", words, {});
  const auto store = open_checkpoints(request.place);
  const CheckpointList all = list_commits(*store);
  std::printf("job %s, %lu attempts\n%10s %8s %14s %12s %7s  %-24s %s\n", all.job.c_str(),
              all.attempts, "step", "attempt", "tokens", "MB", "shards", "time", "status");
  for (const CommitLine& line : all.commits) {
    std::printf("%10lu %8lu %14lu %12.1f %7lu  %-24s %s\n", line.commit.step, line.commit.epoch,
                line.commit.tokens, megabytes(line.commit.bytes), line.commit.shards,
                line.commit.time.c_str(), to_string(line.status));
  }
  print_damages(all.log_damages);
  return static_cast<int>(all.log_damages.empty() ? Outcome::finished : Outcome::bad_data);
}

int show(const Arguments& words) {
  const Request request = parse("show", words, {"--step"});
  const auto store = open_checkpoints(request.place);
  const CommitDetail detail = show_commit(*store, step_of(request));
  const TrainState& state = detail.state;
  std::printf("step %lu, attempt %lu, %lu tokens, %s\n", detail.commit.step, detail.commit.epoch,
              detail.commit.tokens, detail.commit.time.c_str());
  std::printf("seed %lu; data: epoch %lu, position %lu, seed %lu, fingerprint %s\n", state.seed,
              state.data.epoch, state.data.position, state.data.seed,
              state.data.fingerprint.c_str());
  std::printf("schedule: %lu of %lu updates; V = %lu leaves of %lu sequences\n",
              state.schedule_position, state.schedule_total, state.leaves, state.micro);
  for (const auto& [name, value] : state.code) std::printf("%s: %s\n", name.c_str(), value.c_str());
  std::printf("%lu parameters in %zu tensors:\n", detail.parameters, detail.tensors.size());
  for (const TensorLine& tensor : detail.tensors) {
    std::printf("  %-44s %-16s %s ", tensor.name.c_str(), to_string(tensor.shape).c_str(),
                to_string(tensor.dtype));
    for (const StateKind kind : tensor.kinds) std::printf(" %s", to_string(kind));
    std::printf("\n");
  }
  for (const ShardLine& shard : detail.shards) {
    std::printf("  %s  %.1f MB\n", shard.key.c_str(), megabytes(shard.size));
  }
  return 0;
}

int verify(const Arguments& words) {
  const Request request = parse("verify", words, {});
  const auto store = open_checkpoints(request.place);
  const VerifyReport report = verify_checkpoints(*store);
  print_damages(report.damages);
  std::printf("%lu log records, %lu commits, %lu shards, %.1f MB read: %s\n", report.records,
              report.commits, report.shards, megabytes(report.bytes),
              report.damages.empty() ? "all bytes are as they were written" : "DAMAGED");
  return static_cast<int>(report.damages.empty() ? Outcome::finished : Outcome::bad_data);
}

int export_to(const Arguments& words) {
  const Request request = parse("export", words, {"--to", "--step"});
  const auto to = request.flags.find("--to");
  if (to == request.flags.end()) throw ConfigError("ckpt export: --to is missing", kUsage);
  const auto store = open_checkpoints(request.place);
  const ExportResult result = export_commit(*store, to->second, step_of(request));
  std::printf("step %lu: %lu tensors in %s, model in %s\n", result.commit.step, result.tensors,
              result.weights.c_str(), result.config.c_str());
  std::printf("weights_sha256 %s\n", weights_sha256(*store, result.commit.step).c_str());
  return 0;
}

}  // namespace

int run_ckpt(const Arguments& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (verb == "ls") return list(rest);
  if (verb == "show") return show(rest);
  if (verb == "verify") return verify(rest);
  if (verb == "export") return export_to(rest);
  if (verb == "--help" || verb == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  throw ConfigError("ckpt: verb \"" + verb + "\" is unknown", kUsage);
}

}  // namespace lockstep::tools
