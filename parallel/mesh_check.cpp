// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
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

enum Rule { world_rule, tensor_rule, pipeline_rule, virtual_rule, expert_rule, rules };
using Broken = std::array<bool, rules>;

/// What no launch reaches; few enough to be multiplied once more.
constexpr std::int64_t too_many_ranks = std::numeric_limits<int>::max();

std::int64_t split_of(const MeshSizes& s) {
  const std::int64_t row = std::min(static_cast<std::int64_t>(s.tensor) * s.csbp, too_many_ranks);
  return std::min(row * s.pipeline, too_many_ranks);
}
std::int64_t stage_ranks(const MeshRequest& r) { return r.world / r.sizes.pipeline; }
bool known(const ModelSizes& model) { return model.heads > 0; }

bool kv_heads_fit(const ModelSizes& model, int size) {
  return model.kv_heads % size == 0 || size % model.kv_heads == 0;
}

Broken broken(const MeshRequest& r) {
  const auto& [s, model] = std::tie(r.sizes, r.model);
  Broken out{};
  out[world_rule] = split_of(s) >= too_many_ranks || r.world % split_of(s) != 0;
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

/// "6 or 12": the nearest multiples of `step` below and above `value`, up to `most`, with which `set`
/// mends the rule; empty: none does.
template <class Set>
std::string nearest(const MeshRequest& request, Rule rule, std::int64_t value, std::int64_t step,
                    std::int64_t most, Set set) {
  const auto works = [&](std::int64_t size) {
    MeshRequest changed = request;
    set(changed, size);
    return mends(request, changed, rule);
  };
  std::vector<std::int64_t> found;
  for (std::int64_t size = std::min(value - 1, most) / step * step; size >= 1 && found.empty();
       size -= step)
    if (works(size)) found.push_back(size);
  const std::size_t below = found.size();
  for (std::int64_t size = (value / step + 1) * step; size <= most && found.size() == below;
       size += step)
    if (works(size)) found.push_back(size);
  return fmt::format("{}", fmt::join(found, " or "));
}

/// No axis can be larger than what it splits.
std::string nearest_size(const MeshRequest& request, Rule rule, MeshKey axis) {
  MeshRequest copy = request;
  const ModelSizes& m = request.model;
  return nearest(request, rule, axis.field(copy), 1,
                 std::max({request.world, m.heads, m.layers, m.experts}),
                 [&](MeshRequest& r, std::int64_t size) { axis.field(r) = static_cast<int>(size); });
}

/// Multiples of what the axes split the launch into, and of the expert ranks if that must be.
std::string nearest_worlds(const MeshRequest& request) {
  const std::int64_t split = split_of(request.sizes);
  if (split >= too_many_ranks) return "";
  return nearest(request, world_rule, request.world, split,
                 std::max(request.world, split) + split * request.sizes.expert,
                 [](MeshRequest& r, std::int64_t world) { r.world = world; });
}

/// "set parallel.tensor to 2 or 4, or parallel.csbp to 3", of the axes where a change helps.
std::string advice(const MeshRequest& request, Rule rule, std::initializer_list<MeshKey> axes) {
  std::vector<std::string> choices;
  for (const MeshKey& axis : axes) {
    const std::string sizes = nearest_size(request, rule, axis);
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
  std::vector<std::string> ways;
  if (const std::string worlds = nearest_worlds(r); !worlds.empty())
    ways.push_back(fmt::format("start {} ranks", worlds));
  if (const std::string sizes = advice(r, world_rule, {tensor, csbp, pipeline}); !sizes.empty())
    ways.push_back(sizes);
  return {fmt::format("parallel.{}", key),
          with_advice(fmt::format("{} rank{} not divide into {}", r.world,
                                  r.world == 1 ? " does" : "s do", fmt::join(factors, " x ")),
                      fmt::format("{}", fmt::join(ways, ", or ")))};
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
  std::string ways = advice(r, pipeline_rule, {pipeline, virtual_stages});
  if (ways.empty() && r.virtual_stages > 1) {  // both at once
    MeshRequest plain = r;
    plain.virtual_stages = 1;
    const std::string sizes = nearest_size(plain, pipeline_rule, pipeline);
    if (!sizes.empty())
      ways = fmt::format("set parallel.pipeline to {} with parallel.virtual_stages 1", sizes);
  }
  return {"parallel.pipeline",
          with_advice(fmt::format("parallel.pipeline is {}{}: a stage would be without a layer, "
                                  "model.num_hidden_layers is {}",
                                  r.sizes.pipeline, stages, r.model.layers),
                      ways)};
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
  const std::int64_t row = static_cast<std::int64_t>(sizes.tensor) * sizes.csbp;
  const std::int64_t ranks = split_of(sizes) * (sizes.expert / std::gcd(sizes.expert, row));
  return std::min(ranks, too_many_ranks);
}

}  // namespace bdlm
