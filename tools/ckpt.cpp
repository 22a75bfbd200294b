// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/runtime/checkpoint_tools.h"
#include "tools/command.h"
#include "tools/words.h"

namespace lockstep::tools {
namespace {

constexpr const char* kUsage =
    "usage: lockstep ckpt ls     RUN|URI                         every commit\n"
    "       lockstep ckpt show   RUN|URI [--step N]              one commit: state, tensors, "
    "shards\n"
    "       lockstep ckpt verify RUN|URI                         read and check every byte\n"
    "       lockstep ckpt export RUN|URI --to DIR [--step N]     model.safetensors and "
    "config.json\n"
    "       lockstep ckpt gc     RUN|URI [--dry_run false]       what nobody needs any more; with "
    "false "
    "it is removed\n"
    "       lockstep ckpt probe  URI                             what a store really supports\n";

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

std::string loss_of(const CommitInfo& commit) {
  if (!commit.eval_loss) return "-";
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%.9g", *commit.eval_loss);
  return text.data();
}

void print_damages(const std::vector<Damage>& damages) {
  for (const Damage& damage : damages) std::printf("DAMAGED %s\n", to_string(damage).c_str());
}

int list(const Arguments& words) {
  const Words request("ckpt ls", words, {}, kUsage);
  const auto store = open_checkpoints(request.place());
  const CheckpointList all = list_commits(*store);
  std::printf("job %s, %lu attempts\n%10s %8s %14s %12s %7s %12s  %-24s %s\n", all.job.c_str(),
              all.attempts, "step", "attempt", "tokens", "MB", "shards", "eval_loss", "time",
              "status");
  for (const CommitLine& line : all.commits) {
    std::printf("%10lu %8lu %14lu %12.1f %7lu %12s  %-24s %s\n", line.commit.step,
                line.commit.epoch, line.commit.tokens, megabytes(line.commit.bytes),
                line.commit.shards, loss_of(line.commit).c_str(), line.commit.time.c_str(),
                to_string(line.status));
  }
  print_damages(all.log_damages);
  return static_cast<int>(all.log_damages.empty() ? Outcome::finished : Outcome::bad_data);
}

int show(const Arguments& words) {
  const Words request("ckpt show", words, {"--step"}, kUsage);
  const auto store = open_checkpoints(request.place());
  const CommitDetail detail = show_commit(*store, request.number("--step"));
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
  const Words request("ckpt verify", words, {}, kUsage);
  const auto store = open_checkpoints(request.place());
  const VerifyReport report = verify_checkpoints(*store);
  print_damages(report.damages);
  std::printf("%lu log records, %lu commits, %lu shards, %.1f MB read: %s\n", report.records,
              report.commits, report.shards, megabytes(report.bytes),
              report.damages.empty() ? "all bytes are as they were written" : "DAMAGED");
  return static_cast<int>(report.damages.empty() ? Outcome::finished : Outcome::bad_data);
}

int export_to(const Arguments& words) {
  const Words request("ckpt export", words, {"--to", "--step"}, kUsage);
  const std::string& to = request.text("--to");
  const auto store = open_checkpoints(request.place());
  const ExportResult result = export_commit(*store, to, request.number("--step"));
  std::printf("step %lu: %lu tensors in %s, model in %s\n", result.commit.step, result.tensors,
              result.weights.c_str(), result.config.c_str());
  std::printf("weights_sha256 %s\n", weights_sha256(*store, result.commit.step).c_str());
  return 0;
}

int gc(const Arguments& words) {
  const Words request("ckpt gc", words, {"--dry_run"}, kUsage);
  const bool dry_run = request.boolean("--dry_run").value_or(true);
  const auto store = open_checkpoints(request.place());
  const GarbageReport report =
      collect_garbage(*store, dry_run ? GarbageMode::list : GarbageMode::remove);
  std::uint64_t bytes = 0;
  std::uint64_t objects = 0;
  for (const GarbageObject& object : report.objects) {
    const bool counts = dry_run || object.removed;
    if (counts) {
      ++objects;
      bytes += object.size;
    }
    std::printf("%s %s  %lu bytes  %s\n",
                dry_run          ? "would remove"
                : object.removed ? "removed"
                                 : "NOT REMOVED",
                object.key.c_str(), object.size, object.why.c_str());
  }
  std::printf("%lu objects, %lu bytes (%.1f MB) %s\n", objects, bytes, megabytes(bytes),
              dry_run ? "would be removed; nothing was: give --dry_run false" : "removed");
  if (report.kept_objects > 0) {
    std::printf(
        "%lu objects, %lu bytes of attempt %lu have no COMMIT and stay: it may be running\n",
        report.kept_objects, report.kept_bytes, report.attempt);
  }
  for (const std::string& warning : report.warnings) std::printf("NOTE %s\n", warning.c_str());
  print_damages(report.log_damages);
  if (!report.log_damages.empty()) return static_cast<int>(Outcome::bad_data);
  return static_cast<int>(report.warnings.empty() ? Outcome::finished : Outcome::failed_elsewhere);
}

int probe_store(const Arguments& words) {
  const Words request("ckpt probe", words, {}, kUsage);
  // Not open_checkpoints: a store may be probed before it holds any.
  const auto store = ObjectStore::open(request.place());
  bool fits = true;
  for (const ProbeFinding& finding : probe_report(*store)) {
    const char* word = finding.holds ? "yes" : finding.needed ? "NO" : "no";
    std::printf("%-4s %s\n", word, finding.what.c_str());
    if (!finding.error.empty()) {
      std::printf("     %s\n     %s\n", finding.error.c_str(), finding.hint.c_str());
    }
    fits = fits && (finding.holds || !finding.needed);
  }
  std::printf("store %s %s\n", store->uri().c_str(),
              fits ? "keeps checkpoints" : "CANNOT keep checkpoints");
  return static_cast<int>(fits ? Outcome::finished : Outcome::config);
}

}  // namespace

int run_ckpt(const Arguments& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (verb == "ls") return list(rest);
  if (verb == "show") return show(rest);
  if (verb == "verify") return verify(rest);
  if (verb == "export") return export_to(rest);
  if (verb == "gc") return gc(rest);
  if (verb == "probe") return probe_store(rest);
  if (verb == "--help" || verb == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  throw ConfigError("ckpt: verb \"" + verb + "\" is unknown", kUsage);
}

}  // namespace lockstep::tools
