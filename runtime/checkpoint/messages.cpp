// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/messages.h"

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/json.h"

namespace lockstep {
namespace {

Json info_to_json(const std::optional<CommitInfo>& info) {
  if (!info) return nullptr;
  return {{"seq", info->seq},
          {"epoch", info->epoch},
          {"step", info->step},
          {"tokens", info->tokens},
          {"bytes", info->bytes},
          {"shards", info->shards},
          {"time", info->time},
          {"eval_loss", info->eval_loss ? Json(*info->eval_loss) : Json(nullptr)}};
}

std::optional<CommitInfo> info_from(const Json& json, const char* key) {
  const Json& info = get_member(json, key);
  if (info.is_null()) return std::nullopt;
  return CommitInfo{.seq = get_integer(info, "seq"),
                    .epoch = get_integer(info, "epoch"),
                    .step = get_integer(info, "step"),
                    .tokens = get_integer(info, "tokens"),
                    .bytes = get_integer(info, "bytes"),
                    .shards = get_integer(info, "shards"),
                    .time = get_string(info, "time"),
                    .eval_loss = find_real(info, "eval_loss")};
}

std::vector<std::string> warnings_from(const Json& json) {
  return get_array(json, "warnings").get<std::vector<std::string>>();
}

}  // namespace

std::string to_message(const OpenResult& result) {
  return to_text({{"attempt", result.attempt},
                  {"job", result.job},
                  {"resume", info_to_json(result.resume)},
                  {"warnings", result.warnings}});
}

OpenResult open_result_from(std::string_view message) {
  const Json json = parse_json(message);
  return {.attempt = get_integer(json, "attempt"),
          .job = get_string(json, "job"),
          .resume = info_from(json, "resume"),
          .warnings = warnings_from(json)};
}

std::string to_message(const Choice& choice) {
  return to_text({{"commit", info_to_json(choice.commit)},
                  {"manifest", choice.manifest},
                  {"warnings", choice.warnings}});
}

Choice choice_from(std::string_view message) {
  const Json json = parse_json(message);
  return {.commit = info_from(json, "commit"),
          .manifest = get_string(json, "manifest"),
          .warnings = warnings_from(json)};
}

std::string to_message(const ManifestShard& shard) { return to_text(to_json(shard)); }

ManifestShard shard_from(std::string_view message) {
  return manifest_shard_from(parse_json(message));
}

std::string to_message(const SaveResult& result) {
  return to_text({{"commit", info_to_json(result.commit)}, {"warnings", result.warnings}});
}

SaveResult save_result_from(std::string_view message) {
  const Json json = parse_json(message);
  return {.commit = info_from(json, "commit").value_or(CommitInfo{}),
          .warnings = warnings_from(json)};
}

std::string to_message(const SaveFailure& failure) {
  return std::to_string(failure.rank) + '\0' + std::to_string(static_cast<int>(failure.outcome)) +
         '\0' + failure.hint + '\0' + failure.what;
}

SaveFailure save_failure_from(std::string_view message) {
  const auto next = [&] {
    const std::size_t end = message.find('\0');
    std::string text(message.substr(0, end));
    message.remove_prefix(end == std::string_view::npos ? message.size() : end + 1);
    return text;
  };
  SaveFailure failure;
  failure.rank = std::stoi(next());
  failure.outcome = static_cast<Outcome>(std::stoi(next()));
  failure.hint = next();
  failure.what = message;
  return failure;
}

}  // namespace lockstep
