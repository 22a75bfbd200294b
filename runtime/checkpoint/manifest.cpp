// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manifest.h"

#include <array>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "runtime/checkpoint/damage.h"
#include "runtime/checkpoint/json.h"
#include "runtime/checkpoint/record.h"
#include "runtime/checkpoint/shard_plan.h"

namespace lockstep {
namespace {

constexpr std::array kKinds = {StateKind::param, StateKind::master, StateKind::m, StateKind::v};

[[noreturn]] void refuse(const std::string& what) {
  throw DataError(what, "the manifest is damaged; take another checkpoint");
}

StateKind kind_from(const std::string& text) {
  for (const StateKind kind : kKinds) {
    if (text == to_string(kind)) return kind;
  }
  refuse("unknown kind \"" + text + "\" of a tensor");
}

Json to_json(const TensorLine& tensor) {
  Json kinds = Json::array();
  for (const StateKind kind : tensor.kinds) kinds.push_back(to_string(kind));
  return {{"name", tensor.name},
          {"gshape", tensor.shape},
          {"dtype", to_string(tensor.dtype)},
          {"tp_dim", nullptr},
          {"kinds", kinds}};
}

TensorLine tensor_from(const Json& json) {
  TensorLine tensor{.name = get_string(json, "name"), .shape = {}, .dtype = {}, .kinds = {}};
  std::uint64_t elements = 1;
  for (const Json& dim : get_array(json, "gshape")) {
    const std::uint64_t count = as_integer(dim, "gshape");
    if (count != 0 && elements > (std::uint64_t{1} << 50) / count) {
      refuse("tensor " + tensor.name + " is too large");
    }
    elements *= count;
    tensor.shape.push_back(static_cast<std::int64_t>(count));
  }
  const auto dtype = saved_dtype(get_string(json, "dtype"));
  if (!dtype) refuse("tensor " + tensor.name + " has an unknown type");
  tensor.dtype = *dtype;
  for (const Json& kind : get_array(json, "kinds")) {
    if (!kind.is_string()) refuse("member \"kinds\" holds something that is no string");
    tensor.kinds.push_back(kind_from(kind.get<std::string>()));
  }
  if (tensor.kinds.empty()) refuse("tensor " + tensor.name + " is of no kind");
  return tensor;
}

Json state_to_json(const TrainState& state) {
  Json json = {{"rng", {{"seed", state.seed}}},
               {"data",
                {{"fingerprint", state.data.fingerprint},
                 {"seed", state.data.seed},
                 {"epoch", state.data.epoch},
                 {"position", state.data.position}}},
               {"sched", {{"total", state.schedule_total}, {"position", state.schedule_position}}},
               {"V", state.leaves},
               {"micro", state.micro},
               {"model", state.model}};
  if (state.scaler) {
    json["scaler"] = {{"scale", state.scaler->scale},
                      {"good_steps", state.scaler->good_steps},
                      {"skipped", state.scaler->skipped}};
  }
  if (!state.options.empty()) json["options"] = lockstep::to_json(state.options);
  if (!state.tokenizer.empty()) json["tokenizer"] = state.tokenizer;
  return json;
}

std::optional<ScalerState> scaler_from(const Json& json) {
  if (!json.contains("scaler")) return std::nullopt;
  const Json& scaler = get_object(json, "scaler");
  const std::optional<double> scale = find_real(scaler, "scale");
  if (!scale || *scale <= 0.0) {
    throw DataError("member \"scale\" of \"scaler\" is no number above 0",
                    "the object is damaged, or not from Lockstep");
  }
  return ScalerState{.scale = *scale,
                     .good_steps = get_integer(scaler, "good_steps"),
                     .skipped = get_integer(scaler, "skipped")};
}

TrainState state_from(const Json& json) {
  const Json& data = get_object(json, "data");
  const Json& schedule = get_object(json, "sched");
  return {.step = 0,
          .tokens = 0,
          .seed = get_integer(get_object(json, "rng"), "seed"),
          .data = {.fingerprint = get_string(data, "fingerprint"),
                   .seed = get_integer(data, "seed"),
                   .epoch = get_integer(data, "epoch"),
                   .position = get_integer(data, "position")},
          .schedule_total = get_integer(schedule, "total"),
          .schedule_position = get_integer(schedule, "position"),
          .leaves = get_integer(json, "V"),
          .micro = get_integer(json, "micro"),
          .scaler = scaler_from(json),
          .model = get_string(json, "model"),
          .tokenizer = json.contains("tokenizer") ? get_string(json, "tokenizer") : std::string(),
          .eval_loss = {},
          .options = json.contains("options") ? get_strings(json, "options")
                                              : std::map<std::string, std::string>(),
          .code = {}};
}

void check_order(const Manifest& manifest) {
  for (std::size_t i = 1; i < manifest.tensors.size(); ++i) {
    if (manifest.tensors[i - 1].name >= manifest.tensors[i].name) {
      refuse("tensor " + manifest.tensors[i].name + " is out of order");
    }
  }
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    if (manifest.shards[i].writer != i) refuse("shard " + std::to_string(i) + " is missing");
  }
}

std::string etag_from(const Json& json) {
  return get_member(json, "etag").is_null() ? std::string() : get_string(json, "etag");
}

std::string describe_model(const ModelTensor& tensor) {
  return tensor.name + " " + to_string(tensor.shape);
}

}  // namespace

Json to_json(const ManifestShard& shard) {
  return {{"key", shard.key},
          {"size", shard.size},
          {"etag", shard.etag.empty() ? Json(nullptr) : Json(shard.etag)},
          {"head_bytes", shard.head_bytes},
          {"head_sha256", shard.head_sha256},
          {"writer", shard.writer},
          {"dp", shard.dp},
          {"tp", shard.tp}};
}

ManifestShard manifest_shard_from(const Json& json) {
  return {.key = get_key(json, "key"),
          .size = get_integer(json, "size"),
          .etag = etag_from(json),
          .head_bytes = get_integer(json, "head_bytes"),
          .head_sha256 = get_hex(json, "head_sha256", 64),
          .writer = get_integer(json, "writer"),
          .dp = get_integer(json, "dp"),
          .tp = get_integer(json, "tp")};
}

std::string encode(const Manifest& manifest) {
  Json tensors = Json::array();
  for (const TensorLine& tensor : manifest.tensors) tensors.push_back(to_json(tensor));
  Json shards = Json::array();
  for (const ManifestShard& shard : manifest.shards) shards.push_back(to_json(shard));
  const CheckpointMesh& mesh = manifest.mesh;
  Json json;
  json["fmt"] = kFormat;
  json["job"] = manifest.job;
  json["epoch"] = manifest.epoch;
  json["step"] = manifest.state.step;
  json["try"] = manifest.try_number;
  json["tokens"] = manifest.state.tokens;
  json["nonce"] = manifest.nonce;
  json["mesh"] = {{"dp", mesh.dp}, {"tp", mesh.tp}, {"zero", mesh.zero}};
  json["plan_sha256"] = manifest.plan_sha256;
  json["tensors"] = std::move(tensors);
  json["shards"] = std::move(shards);
  json["state"] = state_to_json(manifest.state);
  json["block"] = kBlockBytes;
  json["totals"] = {{"parameters", manifest.parameters}, {"bytes", manifest.bytes}};
  json["code"] = to_json(manifest.state.code);
  return to_text(json) + "\n";
}

Manifest decode_manifest(std::string_view text) {
  const Json json = parse_json(text);
  check_format(get_string(json, "fmt"), "the manifest");
  const Json& mesh = get_object(json, "mesh");
  const Json& totals = get_object(json, "totals");
  Manifest manifest{
      .job = get_string(json, "job"),
      .epoch = get_integer(json, "epoch"),
      .try_number = get_integer(json, "try"),
      .nonce = get_hex(json, "nonce", 32),
      .mesh = {.dp = get_integer(mesh, "dp"),
               .tp = get_integer(mesh, "tp"),
               .zero = get_integer(mesh, "zero")},
      .plan_sha256 = get_hex(json, "plan_sha256", 64),
      .tensors = {},
      .shards = {},
      .state = state_from(get_object(json, "state")),
      .parameters = get_integer(totals, "parameters"),
      .bytes = get_integer(totals, "bytes"),
  };
  manifest.state.step = get_integer(json, "step");
  manifest.state.tokens = get_integer(json, "tokens");
  manifest.state.code = get_strings(json, "code");
  if (get_integer(json, "block") != kBlockBytes) refuse("its block size is not 4 MiB");
  for (const Json& tensor : get_array(json, "tensors")) {
    manifest.tensors.push_back(tensor_from(tensor));
  }
  for (const Json& shard : get_array(json, "shards")) {
    manifest.shards.push_back(manifest_shard_from(shard));
  }
  check_order(manifest);
  return manifest;
}

Manifest check_manifest(const std::optional<std::string>& bytes, const LogView& view,
                        const Commit& commit) {
  const ManifestReference& reference = commit.record.manifest;
  const auto damaged = [&](const std::string& what) -> DamageError {
    return DamageError({.object = reference.key, .dataset = {}, .block = {}, .what = what});
  };
  if (!bytes) throw damaged("the manifest is missing");
  if (bytes->size() != reference.size) {
    throw damaged("the manifest has " + std::to_string(bytes->size()) + " bytes, not " +
                  std::to_string(reference.size));
  }
  if (to_hex(sha256(*bytes)) != reference.sha256) throw damaged("the manifest's SHA-256 is wrong");
  try {
    Manifest manifest = decode_manifest(*bytes);
    const auto mesh = view.mesh_of(commit.epoch);
    const bool same = manifest.job == view.job() && manifest.epoch == commit.epoch &&
                      manifest.state.step == commit.record.step &&
                      manifest.state.tokens == commit.record.tokens &&
                      manifest.shards.size() == commit.record.shards &&
                      (!mesh || *mesh == manifest.mesh);
    if (!same) throw damaged("the manifest belongs to another commit");
    return manifest;
  } catch (const DamageError&) {
    throw;
  } catch (const DataError& error) {
    throw damaged(error.what());
  }
}

Manifest read_manifest(ObjectStore& store, const LogView& view, const Commit& commit) {
  return check_manifest(store.read(commit.record.manifest.key), view, commit);
}

std::vector<ModelTensor> model_of(const Manifest& manifest) {
  std::vector<ModelTensor> model;
  model.reserve(manifest.tensors.size());
  for (const TensorLine& tensor : manifest.tensors) model.push_back({tensor.name, tensor.shape});
  return model;
}

std::vector<std::string> differences(const std::vector<ModelTensor>& saved,
                                     const std::vector<ModelTensor>& now) {
  std::map<std::string, Shape> before;
  for (const ModelTensor& tensor : saved) before[tensor.name] = tensor.shape;
  std::vector<std::string> lines;
  for (const ModelTensor& tensor : now) {
    const auto found = before.find(tensor.name);
    if (found == before.end()) {
      lines.push_back("added: " + describe_model(tensor));
      continue;
    }
    if (found->second != tensor.shape) {
      lines.push_back("shape changed: " + tensor.name + " " + to_string(found->second) + " -> " +
                      to_string(tensor.shape));
    }
    before.erase(found);
  }
  for (const auto& [name, shape] : before)
    lines.push_back("removed: " + name + " " + to_string(shape));
  return lines;
}

}  // namespace lockstep
