// SPDX-License-Identifier: Apache-2.0
// Keys whose values are lists or have words of their own.
#include "trainer/options_special.h"

#include <algorithm>

#include "trainer/options_rows.h"

namespace bdlm::rows {
namespace {

std::string in_brackets(const std::vector<std::string>& items) {
  return fmt::format("[{}]", fmt::join(items, ", "));
}

DataFile data_file(const YAML::Node& node, const std::filesystem::path& base) {
  if (node.IsScalar()) return {to_path(node, base), 1};
  require(node.IsMap(), "must be files or {{path, weight}}, not {}", name_value(node));
  DataFile file;
  for (const auto& entry : node) {
    const std::string name = entry.first.Scalar();
    if (name == "path") {
      file.path = to_path(entry.second, base);
    } else if (name == "weight") {
      file.weight = to_number(entry.second);
      require(file.weight > 0, "has weight {}, must be above 0", file.weight);
    } else {
      fail("has the unknown entry '{}', known are path and weight", name);
    }
  }
  require(!file.path.empty(), "has an entry without a path");
  return file;
}

struct ElideName {
  const char* name;
  bool Elide::*member;
};
constexpr ElideName elide_names[] = {
    {"second_clean", &Elide::second_clean},       {"unscored_blocks", &Elide::unscored_blocks},
    {"last_layer", &Elide::last_layer},           {"unreached_clean", &Elide::unreached_clean},
    {"unscored_logits", &Elide::unscored_logits},
};

}  // namespace

Option layer_types() {
  Option option =
      row("model.layer_types", "list of strings", "", "",
          "sliding_attention or full_attention, one a layer; empty: all full",
          [](const RunConfig& config) { return in_brackets(config.model.config.layer_types); });
  option.nullable = true;
  option.set = [](RunConfig& config, const YAML::Node& node, const auto&) {
    require(node.IsSequence(), "must be a list, not {}", name_value(node));
    config.model.config.layer_types.clear();
    for (const YAML::Node& item : node) config.model.config.layer_types.push_back(to_text(item));
  };
  return option;
}

Option mask_token_id() {
  Option option =
      row("objective.mask_token_id", "whole number", "", "in the vocabulary, never in the data",
          "id that hides a token; default: the config.json's, else vocab_size - 1 (the byte "
          "tokenizer's 257 of 258); none with corruption: uniform",
          [](const RunConfig& config) {
            const std::int64_t id = config.objective.mask_token_id;
            return id < 0 ? std::string("null") : fmt::format("{}", id);
          });
  option.set = [](RunConfig& config, const YAML::Node& node, const auto&) {
    const std::int64_t id = to_integer(node);
    require(id >= 0, "is {}, must be at least 0", id);
    config.objective.mask_token_id = id;
  };
  return with_fallback(option, "by model");
}

Option noise_range() {
  const auto show = [](const RunConfig& config) {
    return in_brackets(
        {number_text(config.objective.range_low), number_text(config.objective.range_high)});
  };
  Option option = row("objective.range", "list of 2 numbers", "", "0 <= low < high <= 1",
                      "noise levels: t = low + (high - low) v with v uniform", show);
  option.set = [](RunConfig& config, const YAML::Node& node, const auto&) {
    require(node.IsSequence() && node.size() == 2, "must be [low, high], not {}",
            node.IsSequence() ? fmt::format("{} values", node.size()) : name_value(node));
    const double low = to_number(node[0]), high = to_number(node[1]);
    require(0 <= low && low < high && high <= 1, "is [{}, {}], must be 0 <= low < high <= 1", low,
            high);
    config.objective.range_low = low;
    config.objective.range_high = high;
  };
  return option;
}

Option train_files() {
  const auto show = [](const RunConfig& config) {
    std::vector<std::string> items;
    for (const DataFile& file : config.data.train) {
      items.push_back(
          fmt::format("{{path: {}, weight: {}}}", quote(file.path), number_text(file.weight)));
    }
    return in_brackets(items);
  };
  Option option = row("data.train", "path or list", "", "",
                      "token file, or a blend: [{path: FILE, weight: 2}, ...]", show);
  option.fallback.clear();
  option.set = [](RunConfig& config, const YAML::Node& node, const std::filesystem::path& base) {
    std::vector<DataFile> files;
    if (node.IsSequence()) {
      for (const YAML::Node& item : node) files.push_back(data_file(item, base));
    } else {
      files.push_back(data_file(node, base));
    }
    config.data.train = std::move(files);
  };
  return option;
}

Option elide() {
  const auto show = [](const RunConfig& config) -> std::string {
    std::vector<std::string> on;
    for (const auto& [name, member] : elide_names) {
      if (config.parallel.plan.elide.*member) on.emplace_back(name);
    }
    if (on.size() == std::size(elide_names)) return "all";
    return on.empty() ? "none" : in_brackets(on);
  };
  std::vector<std::string> names;
  for (const ElideName& entry : elide_names) names.emplace_back(entry.name);
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  Option option = row("parallel.elide", "choice or list", "", "all | none | a list of " + list,
                      "work without a reader that is left out; to measure what each saves", show);
  option.set = [names](RunConfig& config, const YAML::Node& node, const auto&) {
    const bool scalar = node.IsScalar();
    require(node.IsSequence() || (scalar && (node.Scalar() == "all" || node.Scalar() == "none")),
            "is {}, must be all, none or a list of {}", name_value(node), fmt::join(names, ", "));
    Elide chosen;
    for (const auto& [name, member] : elide_names)
      chosen.*member = scalar && node.Scalar() == "all";
    for (std::size_t i = 0; !scalar && i < node.size(); ++i) {
      const std::string name = choose(same_names(names), node[i]);
      for (const auto& entry : elide_names) {
        if (name == entry.name) chosen.*entry.member = true;
      }
    }
    config.parallel.plan.elide = chosen;
  };
  return option;
}

Option recompute_mode() {
  const Choices<Recompute> modes = {
      {"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}};
  const auto show = [modes](const RunConfig& config) {
    std::vector<std::string> names;
    for (Recompute mode : config.recompute) names.push_back(name_of_choice(modes, mode));
    const bool same = std::ranges::adjacent_find(names, std::not_equal_to{}) == names.end();
    if (names.empty()) return std::string("none");
    return same ? names[0] : in_brackets(names);
  };
  Option option = row("recompute.mode", "choice or list", "", join_names(modes, " | "),
                      "what the backward pass computes again instead of keeping; a list has one a "
                      "layer; selective keeps attention's output. Short: `recompute: selective`",
                      show);
  option.set = [modes](RunConfig& config, const YAML::Node& node, const auto&) {
    std::vector<Recompute> chosen;
    if (node.IsSequence()) {
      for (const YAML::Node& item : node) chosen.push_back(choose(modes, item));
      require(!chosen.empty(), "is an empty list, must have one mode a layer");
    } else {
      chosen.push_back(choose(modes, node));
    }
    config.recompute = std::move(chosen);
  };
  return option;
}

Option resume() {
  Option option = row("checkpoint.resume", "choice or path", "", "auto | never | PATH",
                      "where to start: the newest complete checkpoint of run.folder if there is "
                      "one, from nothing, or that checkpoint or run folder",
                      [](const RunConfig& config) -> std::string {
                        if (config.checkpoint.resume == Resume::path) {
                          return quote(config.checkpoint.resume_path);
                        }
                        return config.checkpoint.resume == Resume::never ? "never" : "auto";
                      });
  option.set = [](RunConfig& config, const YAML::Node& node, const std::filesystem::path& base) {
    const std::string text = to_text(node);
    require(!text.empty(), "is empty, must be auto, never or a path");
    const bool named = text == "auto" || text == "never";
    config.checkpoint.resume = text == "auto"    ? Resume::automatic
                               : text == "never" ? Resume::never
                                                 : Resume::path;
    config.checkpoint.resume_path = named ? "" : to_path(node, base);
  };
  return option;
}

}  // namespace bdlm::rows
