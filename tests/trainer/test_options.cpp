// SPDX-License-Identifier: Apache-2.0
// The option table is whole, and the page made from it is the one in docs/.
#include <yaml-cpp/yaml.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>

#include "kernels/error.h"
#include "trainer/options.h"
#include "trainer/options_value.h"

using namespace bdlm;
using Catch::Matchers::Contains;

TEST_CASE("every option is documented, in a section, once") {
  std::set<std::string> keys, sections_used;
  for (const Option& option : options()) {
    CAPTURE(option.key);
    CHECK(keys.insert(option.key).second);
    CHECK_FALSE(option.help.empty());
    CHECK_FALSE(option.type.empty());
    CHECK(option.help.find('\n') == std::string::npos);
    CHECK(option.key.find('.') != std::string::npos);
    sections_used.insert(option.section());
  }
  std::set<std::string> known;
  for (const SectionHelp& section : sections()) known.insert(section.name);
  CHECK(known == sections_used);
}

TEST_CASE("what an option prints it reads back") {
  for (const Option& option : options()) {
    CAPTURE(option.key);
    RunConfig config;
    const std::string printed = option.get(config);
    if (option.fallback.empty() || printed == "null" || printed == "[]") continue;
    CHECK_NOTHROW(option.set(config, YAML::Load(printed), "/"));
    if (option.type != "path" && option.key != "data.train") CHECK(option.get(config) == printed);
  }
}

TEST_CASE("presets name keys and values that exist") {
  for (const Preset& preset : presets()) {
    for (const auto& [key, value] : preset.values) {
      CAPTURE(preset.name, key);
      const Option* option = find_option(key);
      REQUIRE(option != nullptr);
      RunConfig config;
      CHECK_NOTHROW(option->set(config, YAML::Load(value), "/"));
    }
    CHECK_NOTHROW(parse_run_file("objective: {preset: " + preset.name + "}", "run.yaml", {}, 0));
  }
}

TEST_CASE("docs/configuration.md is the option table") {
  std::ostringstream page;
  page << std::ifstream(std::string(BDLM_SOURCE) + "/docs/configuration.md").rdbuf();
  INFO("bdlm train --help-config --markdown > docs/configuration.md");
  const bool same = page.str() == options_markdown();
  CHECK(same);
}

TEST_CASE("help-config shows keys with their defaults") {
  CHECK_THAT(describe_options(), Contains("optimizer.lr = 0.0003") &&
                                     Contains("run.device = auto") &&
                                     Contains("parallel.elide = all") && Contains("fast_dllm_v2"));
}

TEST_CASE("ranges and the nearest word") {
  CHECK(Range{.low = 0, .open_low = true}.text() == "above 0");
  CHECK(Range{.low = 0, .high = 1}.text() == "0 to 1");
  CHECK(Range{.low = 0, .high = 1, .open_high = true}.text() == "0 to below 1");
  CHECK_FALSE(Range{.low = 0, .open_low = true}.holds(0));
  CHECK(Range{.low = 0}.holds(0));
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("clpi", "clip") == 1);
  CHECK(nearest("seqence", {"block", "sequence"}) == "sequence");
  CHECK(nearest("zzz", {"block", "sequence"}).empty());
}

TEST_CASE("quoted text reads back as itself") {
  for (const char* text : {"plain", "yes", "12", "1e-4", "null", "~", "", "a b", "a: b", "#x",
                           "it's \"so\"", "tab\there", "- x", "{name}", "[x]", "\xC3\xA4", "-1"}) {
    CAPTURE(text);
    CHECK(to_text(YAML::Load(quote(text))) == text);
  }
}
