// SPDX-License-Identifier: Apache-2.0
// A config.json given as a value.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/families.h"
#include "tests/model/test_folder.h"

namespace bdlm::test {

inline const std::string golden = std::string(BDLM_TEST_DATA) + "/golden/";

inline ModelConfig read(const nlohmann::json& document) {
  const Folder folder;
  folder.write("config.json", document.dump());
  return read_hf_config(folder.path());
}

}  // namespace bdlm::test
