// SPDX-License-Identifier: Apache-2.0
// Single values of a run file: what is a number, a truth value, a string. yaml-cpp keeps scalars as
// text; what they mean is decided here and nowhere else. All throw Error with the sentence that
// follows "file:line: key: ".
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace bdlm {

/// 4, 1_000, 64Ki, 1e3, 4.0: whatever is a whole number. 012 is twelve. Quoted scalars are strings.
std::int64_t to_integer(const YAML::Node& node);
/// 1e-4, 1E-4, .0001, 1_000, 64Ki. Finite.
double to_number(const YAML::Node& node);
/// true, false, yes, no, on, off; unquoted.
bool to_boolean(const YAML::Node& node);
/// ${NAME} is replaced by the environment's value; one that is not set is an Error.
std::string to_text(const YAML::Node& node);
/// A file or folder, absolute: relative ones start at `base`. Empty stays empty.
std::string to_path(const YAML::Node& node, const std::filesystem::path& base);

/// What a value is, for messages: "'abc'", "a list", "a mapping", "nothing".
std::string name_value(const YAML::Node& node);

/// The shortest text that reads back as the same number.
std::string number_text(double value);
/// As a YAML scalar, quoted where it would read back as something else.
std::string quote(const std::string& text);

/// Allowed numbers, with the words for it.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false, open_high = false;  // the bound itself is not allowed

  bool holds(double x) const {
    return (open_low ? x > low : x >= low) && (open_high ? x < high : x <= high);
  }
  std::string text() const;  // "above 0", "0 to 1", "at least 1"
};

/// How far apart two words are: insertions, deletions, replacements, neighbours swapped.
int edit_distance(const std::string& a, const std::string& b);

/// The nearest of the words if it is near enough to be meant, else empty.
std::string nearest(const std::string& word, const std::vector<std::string>& words);

}  // namespace bdlm
