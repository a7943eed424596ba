// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file. Internal to safetensors*.cpp.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "model/safetensors.h"

namespace bdlm {

/// Bytes of an element; 0 for a dtype that is not read.
std::int64_t element_bytes(const std::string& dtype);

/// All tensors of a file that is mapped at `data`. Throws Error that names the file for anything
/// that is not exactly as the format says.
std::map<std::string, SafetensorsFolder::Entry> parse_safetensors(const std::string& path,
                                                                  const std::byte* data,
                                                                  std::size_t size);

}  // namespace bdlm
