// SPDX-License-Identifier: Apache-2.0
// A run file and its --set words as keys with values and places, before any value is looked at.
#pragma once

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/options.h"

namespace bdlm {

/// Where something stands: "run.yaml:7", "--set run.steps".
struct Place {
  std::string text;
  int line = 0;  // messages are sorted by it
};

/// A key's value, not yet looked at.
struct Assignment {
  const Option* option;
  YAML::Node value;
  Place place;
  std::filesystem::path base;
};

struct Finding {
  Place place;
  std::string key, sentence;

  std::string text() const;  // "run.yaml:7: run.steps: is 0, must be at least 1"
};

struct RunFileKeys {
  std::vector<Assignment> assignments;  // in the order in which they take effect
  std::vector<Finding> findings;        // unknown and repeated keys, values that are no sections
};

/// Throws Error when the text is not YAML at all.
RunFileKeys read_keys(const std::string& text, const std::string& file,
                      const std::vector<std::string>& overrides);

}  // namespace bdlm
