// SPDX-License-Identifier: Apache-2.0
// From keys to a RunConfig: defaults, preset, model folder, run file and --set, one over the other;
// every finding is kept until all has been looked at.
#include "trainer/run_config.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "kernels/error.h"
#include "model/families.h"
#include "trainer/options_special.h"
#include "trainer/options_value.h"
#include "trainer/run_config_checks.h"
#include "trainer/run_config_keys.h"

namespace bdlm {
namespace {

namespace fs = std::filesystem;

class Resolver {
 public:
  Resolver(std::string file, RunFileKeys keys)
      : file_(std::move(file)),
        assignments_(std::move(keys.assignments)),
        findings_(std::move(keys.findings)) {
    for (const Assignment& assignment : assignments_) {
      places_[assignment.option->key] = assignment.place;
    }
  }

  RunConfig resolve(int world);

 private:
  void assign(const Assignment& assignment);
  void apply_preset();
  void apply_model_defaults();
  void derive();
  void complete_model();
  bool given(const std::string& key) const { return places_.contains(key); }
  void report(const Place& place, const std::string& key, const std::string& sentence) {
    findings_.push_back({place, key, sentence});
  }
  /// A finding about keys as they stand now, at the place of the first that the user wrote.
  void report_rule(const std::string& key, const std::string& sentence);
  const Assignment* last_of(const std::string& key) const;
  fs::path folder() const { return fs::path(file_).parent_path(); }

  std::string file_;
  std::vector<Assignment> assignments_;
  std::vector<Finding> findings_;
  std::map<std::string, Place> places_;  // key -> place of its last assignment
  RunConfig config_;
};

void Resolver::report_rule(const std::string& key, const std::string& sentence) {
  // Layers below begin their sentences with the key; it need not be said twice.
  const std::string first = sentence.substr(0, sentence.find(' '));
  if (first.size() < sentence.size() && find_option(first) != nullptr) {
    return report_rule(first, sentence.substr(first.size() + 1));
  }
  if (const auto found = places_.find(key); found != places_.end()) {
    return report(found->second, key, sentence);
  }
  for (const auto& [other, place] : places_) {
    if (sentence.find(other) != std::string::npos) return report(place, key, sentence);
  }
  report({file_}, key, sentence);
}

const Assignment* Resolver::last_of(const std::string& key) const {
  const auto found = std::find_if(assignments_.rbegin(), assignments_.rend(),
                                  [&](const Assignment& a) { return a.option->key == key; });
  return found == assignments_.rend() ? nullptr : &*found;
}

void Resolver::assign(const Assignment& assignment) {
  const Option& option = *assignment.option;
  if (assignment.value.IsNull()) {
    if (option.nullable) {
      places_.erase(option.key);
    } else {
      report(assignment.place, option.key, "has no value: give one or take the line out");
    }
    return;
  }
  try {
    option.set(config_, assignment.value, assignment.base);
  } catch (const Error& error) {
    report(assignment.place, option.key, error.what());
  }
}

void Resolver::apply_preset() {
  const Assignment* chosen = last_of("objective.preset");
  if (chosen == nullptr) return;
  for (const Preset& preset : presets()) {
    if (!chosen->value.IsScalar() || preset.name != chosen->value.Scalar()) continue;
    for (const auto& [key, value] : preset.values) {
      find_option(key)->set(config_, YAML::Load(value), folder());
    }
  }
}

void Resolver::apply_model_defaults() {
  const Assignment* from = last_of("model.from");
  const Assignment* family = last_of("model.model_type");
  const bool known = family != nullptr && family->value.IsScalar() &&
                     std::ranges::count(family_names(), family->value.Scalar()) > 0;
  if (known) config_.model.config = family_defaults(family->value.Scalar());
  if (from == nullptr || from->value.IsNull()) return;
  // Resolved files of older versions say nothing of experts, and what is not there has none.
  const bool dense = known && family_is_dense(family->value.Scalar());
  const bool complete = std::ranges::all_of(options(), [&](const Option& option) {
    return option.section() != "model" || given(option.key) ||
           (dense && rows::is_mixture_key(option.key));
  });
  if (complete) return;
  try {
    config_.model.config = read_hf_config(to_path(from->value, from->base));
  } catch (const Error& error) {
    report(from->place, "model.from", error.what());
  }
}

void Resolver::complete_model() {
  ModelConfig& model = config_.model.config;
  const bool wanted = std::ranges::any_of(
      places_, [](const auto& entry) { return entry.first.starts_with("model."); });
  if (!wanted) return;
  if (model.num_key_value_heads == 0) model.num_key_value_heads = model.num_attention_heads;
  try {
    complete(model);
  } catch (const Error& error) {
    std::istringstream lines(error.what());
    for (std::string line; std::getline(lines, line);) report_rule("model", line);
  }
}

void Resolver::derive() {
  Objective& objective = config_.objective;
  ModelConfig& model = config_.model.config;
  const bool masks = objective.corruption == Corruption::mask;
  if (!given("objective.mask_token_id") && masks && model.vocab_size > 0) {
    objective.mask_token_id = model.mask_token_id.value_or(model.vocab_size - 1);
  }
  if (objective.mask_token_id >= 0 && objective.mask_token_id < model.vocab_size) {
    model.mask_token_id = objective.mask_token_id;  // an export says what was trained with
  }
  if (!given("objective.exclude_mask_token")) {
    const bool has_mask = masks || objective.mask_token_id >= 0;
    objective.exclude_mask_token = objective.target_shift == 0 && has_mask;
  }
  if (!given("model.weights")) {
    config_.model.weights = config_.model.from.empty() ? WeightSource::random : WeightSource::load;
  }
  if (!given("run.folder")) {
    config_.run.folder = fs::absolute(folder() / config_.run.folder).lexically_normal().string();
  }
  const std::string mark = "{name}";
  if (const std::size_t at = config_.run.folder.find(mark); at != std::string::npos) {
    config_.run.folder.replace(at, mark.size(), config_.run.name);
  }

  const auto layers = static_cast<std::size_t>(std::max<std::int64_t>(model.num_hidden_layers, 0));
  std::vector<Recompute>& recompute = config_.recompute;
  if (recompute.empty()) recompute.push_back(Recompute::none);
  if (layers > 0 && recompute.size() == 1) recompute.assign(layers, recompute.front());
  if (layers > 0 && recompute.size() != layers) {
    report_rule("recompute.mode", fmt::format("has {} modes for model.num_hidden_layers {}",
                                              recompute.size(), layers));
  }
}

RunConfig Resolver::resolve(int world) {
  apply_preset();
  apply_model_defaults();
  for (const Assignment& assignment : assignments_) {
    const Assignment* last = last_of(assignment.option->key);
    if (last == &assignment || !last->value.IsNull()) assign(assignment);  // null takes all back
  }
  // Sizes that were not read would only add their absence to the findings.
  const bool model_read = std::ranges::none_of(
      findings_, [](const Finding& finding) { return finding.key.starts_with("model"); });
  derive();
  if (model_read) complete_model();
  const Report told = [this](const std::string& key, const std::string& sentence) {
    report_rule(key, sentence);
  };
  check_run_config(config_, told);
  const bool good = findings_.empty();
  check_run_mesh(config_, world, told);
  if (!findings_.empty()) {
    std::ranges::stable_sort(findings_, {},
                             [](const Finding& finding) { return finding.place.line; });
    std::vector<std::string> lines;
    for (const Finding& finding : findings_) lines.push_back(finding.text());
    const std::string all = fmt::format("{}", fmt::join(lines, "\n"));
    if (good) throw UnfitMesh(all);
    throw Error(all);
  }
  return std::move(config_);
}

}  // namespace

RunConfig parse_run_file(const std::string& text, const std::string& path,
                         const std::vector<std::string>& overrides, int world) {
  return Resolver(path, read_keys(text, path, overrides)).resolve(world);
}

RunConfig read_run_file(const std::string& path, const std::vector<std::string>& overrides,
                        int world) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  require(file.is_open() && (text << file.rdbuf(), !file.bad()) && !fs::is_directory(path),
          "cannot read the run file {}: no such file, or no permission", path);
  return parse_run_file(text.str(), path, overrides, world);
}

}  // namespace bdlm
