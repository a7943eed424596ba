// SPDX-License-Identifier: Apache-2.0
// Safetensors files against a model: do they have what the model asks for, and where does it go.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "model/families.h"
#include "model/families_table.h"
#include "model/safetensors.h"

namespace bdlm {
namespace {

constexpr std::size_t named_at_most = 8;  // tensors of one kind in an error

/// The lines of an error, one for each kind of trouble, the names of its tensors cut short.
class Report {
 public:
  void add(const std::string& trouble, std::string tensor) {
    found_[trouble].push_back(std::move(tensor));
  }
  void raise(const std::string& title) const {
    if (found_.empty()) return;
    std::string text = title;
    for (const auto& [trouble, tensors] : found_) {
      const std::size_t shown = std::min(named_at_most, tensors.size());
      text +=
          fmt::format("\n{}: {}", trouble,
                      fmt::join(tensors.begin(), tensors.begin() + static_cast<long>(shown), ", "));
      if (shown < tensors.size()) text += fmt::format(" and {} more", tensors.size() - shown);
    }
    throw Error(text);
  }

 private:
  std::map<std::string, std::vector<std::string>> found_;
};

std::vector<std::int64_t> shape_of(const DiskTensor& tensor, const ParameterLayout& layout) {
  const Parameter& first = layout.at(tensor.parts.front());
  std::int64_t rows = 0, size = 0;
  for (const std::string& part : tensor.parts) {
    rows += layout.at(part).rows;
    size += layout.at(part).size();
  }
  if (first.vector) return {size};
  return {rows, first.cols};
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool equal(const SafetensorsFolder& files, const std::string& a, const std::string& b) {
  if (files.at(a).shape != files.at(b).shape) return false;
  std::int64_t elements = 1;
  for (const std::int64_t size : files.at(a).shape) elements *= size;
  constexpr std::int64_t chunk = 1 << 20;
  std::vector<double> x(static_cast<std::size_t>(std::min(chunk, elements))), y = x;
  for (std::int64_t begin = 0; begin < elements; begin += chunk) {
    const std::int64_t count = std::min(chunk, elements - begin);
    files.read(a, begin, count, x.data());
    files.read(b, begin, count, y.data());
    if (!std::equal(x.begin(), x.begin() + count, y.begin())) return false;
  }
  return true;
}

/// Buffers that old converters stored and everybody computes.
bool derived(const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); }

}  // namespace

void check_tensors(const SafetensorsFolder& files, const ModelConfig& config) {
  const ParameterLayout layout = layout_of(config);
  Report report;
  std::map<std::string, std::vector<std::int64_t>> wanted;
  for (const DiskTensor& tensor : disk_tensors(config, layout)) {
    wanted.emplace(tensor.name, shape_of(tensor, layout));
  }
  for (const auto& [name, shape] : wanted) {
    const auto found = files.tensors().find(name);
    if (found == files.tensors().end()) {
      report.add("missing", name);
    } else if (found->second.shape != shape) {
      report.add("of another shape", fmt::format("{} is {} and should be {}", name,
                                                 text_of(found->second.shape), text_of(shape)));
    }
  }

  const std::string head = family_of(config.family, "model.family").head;
  const std::string embedding = place_on_disk(config, "model.embed_tokens.weight").name;
  for (const auto& [name, entry] : files.tensors()) {
    if (wanted.contains(name) || derived(name)) continue;
    if (!config.tie_word_embeddings || name != head) {
      report.add("not of this model", name);
    } else if (files.tensors().contains(embedding) && !equal(files, head, embedding)) {
      report.add("tied by config.json, but not equal", fmt::format("{} and {}", head, embedding));
    }
  }
  report.raise(fmt::format("the tensors in {} are not those of the model in its config.json",
                           files.folder()));
}

void read_parameters(const SafetensorsFolder& files, const ModelConfig& config,
                     const ParameterLayout& layout, std::int64_t begin, std::int64_t count,
                     double* out) {
  require(begin >= 0 && count >= 0 && begin + count <= layout.size,
          "elements {}..{} are not within the {} parameters", begin, begin + count, layout.size);
  std::fill_n(out, count, 0.0);
  // The first tensor that is not wholly before `begin`: there may be thousands.
  auto next = std::ranges::partition_point(layout.tensors, [&](const Parameter& tensor) {
    return tensor.offset + tensor.size() <= begin;
  });
  for (; next != layout.tensors.end() && next->offset < begin + count; ++next) {
    const std::vector<LogicalRun> runs = logical_runs(*next, begin, count);
    if (runs.empty()) continue;
    const DiskPlace place = place_on_disk(config, next->name);
    const std::int64_t before = place.first_row * (next->vector ? 1 : next->whole_cols);
    for (const LogicalRun& run : runs) {
      files.read(place.name, before + run.first, run.count, out + (run.local - begin));
    }
  }
}

}  // namespace bdlm
