// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/error.h"

namespace bdlm {
namespace {

/// A number that the user can change.
struct MeshKey {
  const char* name;
  int& (*field)(MeshRequest&);
};
const MeshKey tensor{"tensor", [](MeshRequest& r) -> int& { return r.sizes.tensor; }};
const MeshKey csbp{"csbp", [](MeshRequest& r) -> int& { return r.sizes.csbp; }};
const MeshKey pipeline{"pipeline", [](MeshRequest& r) -> int& { return r.sizes.pipeline; }};
const MeshKey expert{"expert", [](MeshRequest& r) -> int& { return r.sizes.expert; }};
const MeshKey virtual_stages{"virtual_stages",
                          [](MeshRequest& r) -> int& { return r.virtual_stages; }};

constexpr std::int64_t most_ranks = 1 << 17;  // no cluster is larger; a mistyped size may be

enum Rule { world_rule, tensor_rule, pipeline_rule, virtual_rule, expert_rule, rules };
using Broken = std::array<bool, rules>;

std::int64_t split_of(const MeshSizes& s) {
  return static_cast<std::int64_t>(s.tensor) * s.csbp * s.pipeline;
}
std::int64_t stage_ranks(const MeshRequest& r) { return r.world / r.sizes.pipeline; }
bool known(const ModelSizes& model) { return model.heads > 0; }

bool kv_heads_fit(const ModelSizes& model, int size) {
  return model.kv_heads % size == 0 || size % model.kv_heads == 0;
}

Broken broken(const MeshRequest& r) {
  const auto& [s, model] = std::tie(r.sizes, r.model);
  Broken out{};
  out[world_rule] = r.world % split_of(s) != 0;
  // The ranks of a stage are not known then; nor is more than one wanted without experts.
  out[expert_rule] = !out[world_rule] && stage_ranks(r) % s.expert != 0;
  out[virtual_rule] =
      r.virtual_stages > 1 && (s.pipeline == 1 || r.schedule != PipelineSchedule::interleaved);
  if (known(model)) {
    out[tensor_rule] = model.heads % s.tensor != 0 || !kv_heads_fit(model, s.tensor);
    out[pipeline_rule] = model.layers < static_cast<std::int64_t>(s.pipeline) * r.virtual_stages;
    out[expert_rule] |= s.expert > 1 && (model.experts == 0 || model.experts % s.expert != 0);
  }
  return out;
}

bool mends(const MeshRequest& now, const MeshRequest& changed, Rule rule) {
  const Broken before = broken(now), after = broken(changed);
  for (int i = 0; i < rules; ++i)
    if (after[static_cast<std::size_t>(i)] && (i == rule || !before[static_cast<std::size_t>(i)]))
      return false;
  return true;
}

/// "6 or 12": the nearest values below and above with which `set` mends the rule; empty: none does.
template <class Value, class Set>
std::string nearest(const MeshRequest& request, Rule rule, Value value, Set set) {
  const auto works = [&](Value size) {
    MeshRequest changed = request;
    set(changed, size);
    return mends(request, changed, rule);
  };
  const ModelSizes& m = request.model;
  const std::int64_t most = std::min(
      most_ranks, 2 * std::max({request.world, split_of(request.sizes), m.heads, m.layers, m.experts,
                              std::int64_t{request.sizes.expert}}));
  std::vector<Value> found;
  for (Value size = std::min(value - 1, static_cast<Value>(most)); size >= 1 && found.empty();
       --size)
    if (works(size)) found.push_back(size);
  const std::size_t below = found.size();
  for (Value size = value + 1; size <= most && found.size() == below; ++size)
    if (works(size)) found.push_back(size);
  return fmt::format("{}", fmt::join(found, " or "));
}

/// "set parallel.tensor to 2 or 4, or parallel.csbp to 3", of the axes where a change helps.
std::string advice(const MeshRequest& request, Rule rule, std::initializer_list<MeshKey> axes) {
  std::vector<std::string> choices;
  for (const MeshKey& axis : axes) {
    MeshRequest copy = request;
    const std::string sizes = nearest(request, rule, axis.field(copy),
                                      [&](MeshRequest& r, int size) { axis.field(r) = size; });
    if (!sizes.empty()) choices.push_back(fmt::format("parallel.{} to {}", axis.name, sizes));
  }
  return choices.empty() ? "" : fmt::format("set {}", fmt::join(choices, ", or "));
}

std::string with_advice(std::string sentence, const std::string& advice) {
  return advice.empty() ? sentence : sentence + ": " + advice;
}

MeshFinding world_finding(const MeshRequest& r) {
  std::vector<std::string> factors;
  const char* key = nullptr;
  for (const MeshKey& axis : {tensor, csbp, pipeline}) {
    MeshRequest copy = r;
    if (axis.field(copy) == 1) continue;
    if (key == nullptr) key = axis.name;
    factors.push_back(fmt::format("{} {}", axis.name, axis.field(copy)));
  }
  const std::string worlds =
      nearest(r, world_rule, r.world, [](MeshRequest& c, std::int64_t size) { c.world = size; });
  const std::string sizes = advice(r, world_rule, {tensor, csbp, pipeline});
  return {fmt::format("parallel.{}", key),
          fmt::format("{} rank{} not divide into {}: {}{}{}", r.world,
                      r.world == 1 ? " does" : "s do", fmt::join(factors, " x "),
                      worlds.empty() ? "" : fmt::format("start {} ranks", worlds),
                      worlds.empty() || sizes.empty() ? "" : ", or ", sizes)};
}

MeshFinding tensor_finding(const MeshRequest& r) {
  const int size = r.sizes.tensor;
  const std::string why =
      r.model.heads % size != 0
          ? fmt::format("does not divide model.num_attention_heads {}", r.model.heads)
          : fmt::format("neither divides model.num_key_value_heads {} nor is a multiple of it",
                        r.model.kv_heads);
  return {"parallel.tensor", with_advice(fmt::format("parallel.tensor is {}, which {}", size, why),
                                         advice(r, tensor_rule, {tensor}))};
}

MeshFinding pipeline_finding(const MeshRequest& r) {
  const std::string stages =
      r.virtual_stages == 1
          ? ""
          : fmt::format(", with parallel.virtual_stages {} that is {} stages", r.virtual_stages,
                        static_cast<std::int64_t>(r.sizes.pipeline) * r.virtual_stages);
  return {"parallel.pipeline",
          with_advice(fmt::format("parallel.pipeline is {}{}: a stage would be without a layer, "
                                  "model.num_hidden_layers is {}",
                                  r.sizes.pipeline, stages, r.model.layers),
                      advice(r, pipeline_rule, {pipeline, virtual_stages}))};
}

MeshFinding virtual_finding(const MeshRequest& r) {
  const std::string is = fmt::format("parallel.virtual_stages is {}, but ", r.virtual_stages);
  if (r.schedule != PipelineSchedule::interleaved)
    return {"parallel.virtual_stages",
            is + "parallel.schedule is 1f1b, which runs one stage a rank: set parallel.schedule to "
                 "interleaved, or parallel.virtual_stages to 1"};
  return {"parallel.virtual_stages",
          with_advice(is + "with parallel.pipeline 1 there is nothing to interleave",
                      advice(r, virtual_rule, {pipeline, virtual_stages}))};
}

MeshFinding expert_finding(const MeshRequest& r) {
  const int size = r.sizes.expert;
  const std::int64_t experts = r.model.experts;
  const std::string ways = advice(r, expert_rule, {expert});
  const auto finding = [&](const std::string& why) {
    return MeshFinding{"parallel.expert",
                       with_advice(fmt::format("parallel.expert is {}, {}", size, why), ways)};
  };
  if (known(r.model) && experts == 0) return finding("but the model has no experts");
  if (known(r.model) && size > experts)
    return finding(fmt::format("more expert ranks than the model's {} experts", experts));
  if (known(r.model) && experts % size != 0)
    return finding(fmt::format("which does not divide the model's {} experts", experts));
  return finding(
      fmt::format("which does not divide the {} ranks of a pipeline stage (tensor {} x "
                  "csbp {} x data {})",
                  stage_ranks(r), r.sizes.tensor, r.sizes.csbp,
                  stage_ranks(r) / (r.sizes.tensor * r.sizes.csbp)));
}

}  // namespace

std::vector<MeshFinding> check_mesh(const MeshRequest& request) {
  require(request.world >= 1, "a mesh of {} ranks: at least one is needed", request.world);
  std::vector<MeshFinding> findings;
  for (const MeshKey& axis : {tensor, csbp, pipeline, virtual_stages, expert}) {
    MeshRequest copy = request;
    const std::string key = fmt::format("parallel.{}", axis.name);
    if (axis.field(copy) < 1)
      findings.push_back({key, fmt::format("{} is {}: it is at least 1", key, axis.field(copy))});
  }
  const std::int64_t ranks = smallest_world(request.sizes);
  if (findings.empty() && ranks > most_ranks)
    findings.push_back({"parallel.csbp",
                        fmt::format("parallel.csbp {} with the other axes asks for {} ranks, more "
                                    "than the {} that are possible",
                                    request.sizes.csbp, ranks, most_ranks)});
  if (!findings.empty()) return findings;

  const Broken wrong = broken(request);
  if (wrong[world_rule]) findings.push_back(world_finding(request));
  if (wrong[tensor_rule]) findings.push_back(tensor_finding(request));
  if (wrong[pipeline_rule]) findings.push_back(pipeline_finding(request));
  if (wrong[virtual_rule]) findings.push_back(virtual_finding(request));
  if (wrong[expert_rule]) findings.push_back(expert_finding(request));
  return findings;
}

std::int64_t smallest_world(const MeshSizes& sizes) {
  return split_of(sizes) * (sizes.expert / std::gcd(sizes.expert, sizes.tensor * sizes.csbp));
}

}  // namespace bdlm
