// SPDX-License-Identifier: Apache-2.0
// Walks the YAML tree along the option table.
#include "trainer/run_config_keys.h"

#include <climits>
#include <map>

#include "kernels/error.h"
#include "trainer/options_value.h"

namespace bdlm {
namespace {

namespace fs = std::filesystem;

/// A file, or one --set.
struct Source {
  std::string name;
  fs::path base;  // where its relative paths start
  bool lines = true;

  Place place(const YAML::Node& node) const {
    const int line = node.Mark().line + 1;
    return lines ? Place{fmt::format("{}:{}", name, line), line} : Place{name, INT_MAX};
  }
};

std::vector<std::string> children_of(const std::string& path) {
  std::vector<std::string> names;
  const std::string start = path.empty() ? "" : path + ".";
  for (const Option& option : options()) {
    if (!option.key.starts_with(start)) continue;
    const std::string rest = option.key.substr(start.size());
    const std::string name = rest.substr(0, rest.find('.'));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

/// The known key that an unknown one may stand for: a neighbour, or the same name elsewhere.
std::string suggestion(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::string parent = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string name = path.substr(dot + 1);
  const std::string near = nearest(name, children_of(parent));
  if (!near.empty()) return parent.empty() ? near : parent + "." + near;
  std::string best;
  int smallest = name.size() > 4 ? 2 : 1;
  for (const Option& option : options()) {
    const int distance = edit_distance(name, option.key.substr(option.key.rfind('.') + 1));
    if (distance < smallest) {
      smallest = distance;
      best = option.key;
    }
  }
  return best;
}

struct KeyReader {
  std::string file;
  RunFileKeys keys;

  void read_text(const std::string& text);
  void read_override(const std::string& word);
  /// `place` is that of the node's name: the value may start on a later line.
  void walk(const YAML::Node& node, const std::string& path, const Place& place,
            const Source& source);
  void walk_map(const YAML::Node& node, const std::string& path, const Source& source);
  void report(const Place& place, const std::string& key, const std::string& sentence) {
    keys.findings.push_back({place, key, sentence});
  }
};

void KeyReader::read_text(const std::string& text) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    fail("{}:{}: not valid YAML: {}", file, error.mark.line + 1, error.msg);
  }
  require(root.IsMap() || root.IsNull(), "{}:1: must be sections with keys, not {}", file,
          name_value(root));
  const Source source{file, fs::path(file).parent_path()};
  walk(root, "", source.place(root), source);
}

void KeyReader::read_override(const std::string& word) {
  const std::size_t equal = word.find('=');
  const std::string key = word.substr(0, equal);
  const Source source{"--set " + key, fs::current_path(), false};
  const Place place = source.place({});
  if (equal == std::string::npos || equal == 0) {
    return report(place, key, "must be section.key=value");
  }
  try {
    walk(YAML::Load(word.substr(equal + 1)), key, place, source);
  } catch (const YAML::Exception& error) {
    report(place, key, "not valid YAML: " + error.msg);
  }
}

void KeyReader::walk(const YAML::Node& node, const std::string& path, const Place& place,
                     const Source& source) {
  if (const Option* option = find_option(path)) {
    keys.assignments.push_back({option, node, place, source.base});
    return;
  }
  if (!path.empty() && children_of(path).empty()) {
    const std::string near = suggestion(path);
    return report(place, path,
                  "unknown key" + (near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
  if (node.IsMap()) return walk_map(node, path, source);
  if (node.IsNull()) return;  // a section without keys
  if (find_option(path + ".mode") != nullptr) return walk(node, path + ".mode", place, source);
  report(place, path,
         fmt::format("is a section with the keys {}, not {}", fmt::join(children_of(path), ", "),
                     name_value(node)));
}

void KeyReader::walk_map(const YAML::Node& node, const std::string& path, const Source& source) {
  std::map<std::string, Place> seen;
  for (const auto& entry : node) {
    const Place place = source.place(entry.first);
    if (!entry.first.IsScalar()) {
      report(place, path, fmt::format("has {} for a key", name_value(entry.first)));
      continue;
    }
    const std::string name = entry.first.Scalar();
    const std::string key = path.empty() ? name : path + "." + name;
    const auto [first, fresh] = seen.emplace(name, place);
    if (fresh) {
      walk(entry.second, key, place, source);
    } else {
      report(place, key, fmt::format("stands here again, its first is at {}", first->second.text));
    }
  }
}

}  // namespace

std::string Finding::text() const {
  // An override's place names the key already.
  if (key.empty() || place.text.ends_with(" " + key)) return place.text + ": " + sentence;
  return fmt::format("{}: {}: {}", place.text, key, sentence);
}

RunFileKeys read_keys(const std::string& text, const std::string& file,
                      const std::vector<std::string>& overrides) {
  KeyReader reader{file, {}};
  reader.read_text(text);
  for (const std::string& word : overrides) reader.read_override(word);
  return std::move(reader.keys);
}

}  // namespace bdlm
