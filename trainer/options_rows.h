// SPDX-License-Identifier: Apache-2.0
// Makers of rows of the option table. `member` maps a RunConfig, const or not, to the field; the
// default is read from there, so that it stands in the structs only.
#pragma once

#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "kernels/error.h"
#include "trainer/options.h"
#include "trainer/options_value.h"

namespace bdlm::rows {

template <class Get>
Option row(std::string key, std::string type, std::string unit, std::string range, std::string help,
           Get get) {
  Option option{.key = std::move(key),
                .type = std::move(type),
                .fallback = get(RunConfig{}),
                .unit = std::move(unit),
                .range = std::move(range),
                .help = std::move(help),
                .set = {},
                .get = get};
  if (option.fallback == "\"\"" || option.fallback == "null") option.fallback.clear();
  return option;
}

template <class Member>
Option integer(std::string key, Member member, Range range, std::string unit, std::string help) {
  using Field = std::remove_reference_t<decltype(member(std::declval<RunConfig&>()))>;
  Option option =
      row(std::move(key), "whole number", std::move(unit), range.text(), std::move(help),
          [member](const RunConfig& config) { return fmt::format("{}", member(config)); });
  option.set = [member, range](RunConfig& config, const YAML::Node& node, const auto&) {
    const std::int64_t value = to_integer(node);
    require(range.holds(static_cast<double>(value)), "is {}, must be {}", value, range.text());
    require(std::in_range<Field>(value), "is {}, which is too large", value);
    member(config) = static_cast<Field>(value);
  };
  return option;
}

template <class Member>
Option number(std::string key, Member member, Range range, std::string unit, std::string help) {
  Option option = row(std::move(key), "number", std::move(unit), range.text(), std::move(help),
                      [member](const RunConfig& config) { return number_text(member(config)); });
  option.set = [member, range](RunConfig& config, const YAML::Node& node, const auto&) {
    const double value = to_number(node);
    require(range.holds(value), "is {}, must be {}", value, range.text());
    member(config) = value;
  };
  return option;
}

template <class Member>
Option boolean(std::string key, Member member, std::string help) {
  Option option =
      row(std::move(key), "true or false", "", "", std::move(help),
          [member](const RunConfig& config) { return member(config) ? "true" : "false"; });
  option.set = [member](RunConfig& config, const YAML::Node& node, const auto&) {
    member(config) = to_boolean(node);
  };
  return option;
}

template <class Member>
Option text(std::string key, Member member, std::string help) {
  Option option = row(std::move(key), "string", "", "", std::move(help),
                      [member](const RunConfig& config) { return quote(member(config)); });
  option.set = [member](RunConfig& config, const YAML::Node& node, const auto&) {
    member(config) = to_text(node);
  };
  return option;
}

template <class Member>
Option path(std::string key, Member member, std::string help) {
  Option option = row(std::move(key), "path", "", "", std::move(help),
                      [member](const RunConfig& config) { return quote(member(config)); });
  option.set = [member](RunConfig& config, const YAML::Node& node,
                        const std::filesystem::path& base) {
    member(config) = to_path(node, base);
  };
  return option;
}

inline Option with_fallback(Option option, std::string fallback, bool nullable = true) {
  option.fallback = std::move(fallback);
  option.nullable = nullable;
  return option;
}

template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;

inline Choices<std::string> same_names(const std::vector<std::string>& names) {
  Choices<std::string> out;
  for (const std::string& name : names) out.emplace_back(name, name);
  return out;
}

template <class Value>
std::string join_names(const Choices<Value>& choices, const char* separator) {
  std::string out;
  for (const auto& [name, value] : choices) out += (out.empty() ? "" : separator) + name;
  return out;
}

template <class Value>
Value choose(const Choices<Value>& choices, const YAML::Node& node) {
  const std::string given = node.IsScalar() ? node.Scalar() : std::string();
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (name == given && node.IsScalar()) return value;
    names.push_back(name);
  }
  const std::string near = nearest(given, names);
  fail("is {}, must be {}{}", name_value(node), join_names(choices, " | "),
       near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

template <class Value>
std::string name_of_choice(const Choices<Value>& choices, const Value& wanted) {
  for (const auto& [name, value] : choices) {
    if (value == wanted) return name;
  }
  return "null";
}

template <class Value, class Member>
Option choice(std::string key, Member member, Choices<Value> choices, std::string help) {
  Option option = row(std::move(key), "choice", "", join_names(choices, " | "), std::move(help),
                      [member, choices](const RunConfig& config) {
                        return name_of_choice<Value>(choices, member(config));
                      });
  option.set = [member, choices](RunConfig& config, const YAML::Node& node, const auto&) {
    member(config) = choose(choices, node);
  };
  return option;
}

}  // namespace bdlm::rows
