// SPDX-License-Identifier: Apache-2.0
// Reading safetensors files (https://github.com/huggingface/safetensors): one file or shards with
// an index. Mapped, not copied; F64, F32, BF16 and F16 are converted on reading.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"

namespace bdlm {

class SafetensorsFolder {
 public:
  struct Entry {
    std::string file, dtype;
    std::vector<std::int64_t> shape;
    const std::byte* data = nullptr;
  };

  /// model.safetensors, or model.safetensors.index.json and its shards. Every header is checked
  /// against the file's size: a truncated or foreign file is named and refused.
  explicit SafetensorsFolder(const std::string& folder);
  ~SafetensorsFolder();
  const std::string& folder() const { return folder_; }
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  const Entry& at(const std::string& name) const;  // throws Error that names the folder
  /// Elements [begin, begin + count) of a tensor, row-major, as double.
  void read(const std::string& name, std::int64_t begin, std::int64_t count, double* out) const;

 private:
  struct Mapping;
  std::string folder_;
  std::vector<std::unique_ptr<Mapping>> mappings_;
  std::map<std::string, Entry> tensors_;
};

/// Tensor by tensor against the whole model: all that are missing, extra or misshaped in one Error.
/// A tied model may carry its head's weight if it equals the embedding.
void check_tensors(const SafetensorsFolder& files, const ModelConfig& config);

/// Elements [begin, begin + count) of the flat parameter range of a layout, of the whole model or
/// of a rank's part; only what lies in them is read. Gaps become 0.
void read_parameters(const SafetensorsFolder& files, const ModelConfig& config,
                     const ParameterLayout& layout, std::int64_t begin, std::int64_t count,
                     double* out);

}  // namespace bdlm
