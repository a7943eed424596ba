// SPDX-License-Identifier: Apache-2.0
// The option table: every key of a run file once, with its type, default, unit, range and one line
// of documentation. Parsing, validation, printing, --help-config and docs/configuration.md read it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trainer/run_config.h"

namespace YAML {
class Node;
}

namespace bdlm {

struct Option {
  std::string key;   // "optimizer.lr", "model.rope_scaling.factor"
  std::string type;  // "whole number", "number", "true or false", "string", "path", "choice", ...
  std::string fallback;  // the default, as one would write it; "" where there is none
  std::string unit;      // "tokens"; "" for none
  std::string range;     // "above 0", "auto | cpu | cuda"; "" for any
  std::string help;
  bool nullable = false;  // `null` is accepted and means the default

  /// Throws Error with a sentence about the value. Relative paths start at `base`.
  std::function<void(RunConfig&, const YAML::Node&, const std::filesystem::path& base)> set;
  /// YAML that `set` reads back as the same.
  std::function<std::string(const RunConfig&)> get;

  std::string section() const { return key.substr(0, key.find('.')); }
};

/// In the order of the sections of RunConfig.
const std::vector<Option>& options();
/// nullptr when there is no such key.
const Option* find_option(const std::string& key);

struct SectionHelp {
  std::string name, help;
};
const std::vector<SectionHelp>& sections();

/// A named set of defaults: `objective.preset`. Values are written as in a run file.
struct Preset {
  std::string name, help;
  std::vector<std::pair<std::string, std::string>> values;  // key, value
};
const std::vector<Preset>& presets();

}  // namespace bdlm
