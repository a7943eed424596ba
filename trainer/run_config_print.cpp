// SPDX-License-Identifier: Apache-2.0
// The option table and resolved run files as text.
#include <algorithm>
#include <sstream>

#include "trainer/options.h"
#include "trainer/run_config.h"
#include "trainer/run_config_checks.h"

namespace bdlm {
namespace {

/// Sections as mappings: the levels that two keys share are written once.
void print_key(std::string& out, const std::string& key, const std::string& last,
               const std::string& value) {
  std::istringstream parts(key), before(last);
  std::string part, other, indent;
  bool shared = true;
  while (std::getline(parts, part, '.')) {
    shared = shared && std::getline(before, other, '.') && part == other;
    if (!shared) {
      if (!out.empty() && indent.empty()) out += "\n";
      out += indent + part + ":";
      out += parts.eof() ? " " + value + "\n" : "\n";
    }
    indent += "  ";
  }
}

/// "number, above 0, seconds", "auto | cpu | cuda"
std::string type_text(const Option& option) {
  const bool listed = option.type == "choice";  // the range says it all
  std::string out = listed ? option.range : option.type;
  if (!listed && !option.range.empty()) out += ", " + option.range;
  if (!option.unit.empty()) out += ", " + option.unit;
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string print_run_file(const RunConfig& config) {
  std::string out, last;
  for (const Option& option : options()) {
    if (option.section() == "model" && !has_model(config)) continue;
    std::string value = option.get(config);
    if (value == "\"\"") value = option.nullable ? "null" : value;
    print_key(out, option.key, last, value);
    last = option.key;
  }
  return out;
}

std::string describe_options() {
  std::string out;
  for (const SectionHelp& section : sections()) {
    out += fmt::format("{}{}: {}\n", out.empty() ? "" : "\n", section.name, section.help);
    for (const Option& option : options()) {
      if (option.section() != section.name) continue;
      const std::string fallback = option.fallback.empty() ? "none" : option.fallback;
      out += fmt::format("  {} = {}\n      {}\n      {}\n", option.key, fallback, option.help,
                         type_text(option));
    }
  }
  out += "\nobjective.preset:\n";
  for (const Preset& preset : presets()) {
    out += fmt::format("  {}\n      {}\n", preset.name, preset.help);
    for (const auto& [key, value] : preset.values) out += fmt::format("      {}: {}\n", key, value);
  }
  return out;
}

std::string options_markdown() {
  std::string out =
      "# Configuration\n\n"
      "<!-- Made by `bdlm train --help-config --markdown`; a test compares the two. -->\n\n"
      "A run file is YAML with the sections below. Every key has a default. Unknown and repeated\n"
      "keys, wrong types, numbers out of range and combinations that cannot work are refused "
      "before\n"
      "anything is allocated, all of them at once.\n\n"
      "* Numbers: `1e-4`, `.0001`, `1_000`, `64Ki` (Ki, Mi, Gi, Ti: powers of 1024). In quotes "
      "they\n"
      "  are strings.\n"
      "* `true`, `false`, `yes`, `no`, `on`, `off` are truth values; as a string, quote them.\n"
      "* `${NAME}` in a string is the environment variable.\n"
      "* Relative paths start at the run file's folder; those of `--set`, at the current one.\n"
      "* `--set section.key=value` has the last word, then the run file, then the preset, then "
      "the\n"
      "  default.\n"
      "* `bdlm train RUN.yaml --print-config` shows what a run file comes to.\n";
  for (const SectionHelp& section : sections()) {
    out += fmt::format("\n## {}\n\n{}\n\n", section.name, section.help);
    out += "| key | default | type | what |\n|---|---|---|---|\n";
    for (const Option& option : options()) {
      if (option.section() != section.name) continue;
      const std::string name = option.key.substr(section.name.size() + 1);
      const std::string fallback =
          option.fallback.empty() ? "" : fmt::format("`{}`", option.fallback);
      out += fmt::format("| `{}` | {} | {} | {} |\n", name, escaped(fallback),
                         escaped(type_text(option)), escaped(option.help));
    }
  }
  out += "\n## Presets\n\n`objective.preset` changes these defaults; any key can still be given.\n";
  for (const Preset& preset : presets()) {
    out += fmt::format("\n**{}**: {}.\n\n", preset.name, preset.help);
    for (const auto& [key, value] : preset.values) {
      out += fmt::format("* `{}: {}`\n", key.substr(key.find('.') + 1), value);
    }
  }
  return out;
}

}  // namespace bdlm
