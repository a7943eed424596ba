// SPDX-License-Identifier: Apache-2.0
#include "trainer/parity_tensors.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "kernels/error.h"

namespace bdlm {
namespace {

/// Where a logical tensor stands in the tensors on disk.
struct GoldenPlace {
  std::size_t tensor = 0;
  std::int64_t first = 0;  // element
};

std::unordered_map<std::string, GoldenPlace> places_of(const std::vector<DiskTensor>& disk,
                                                     const ParameterLayout& whole,
                                                     std::vector<std::int64_t>& sizes) {
  std::unordered_map<std::string, GoldenPlace> places;
  for (std::size_t t = 0; t < disk.size(); ++t) {
    std::int64_t at = 0;
    for (const std::string& part : disk[t].parts) {
      places[part] = {t, at};
      at += whole.at(part).whole_size();
    }
    sizes.push_back(at);
  }
  return places;
}

}  // namespace

TensorsComparison compare_owned(const ModelConfig& model, const ParameterLayout& local,
                                const std::vector<FlatRange>& parts,
                                const std::vector<double>& values,
                                const std::map<std::string, std::vector<double>>& golden,
                                Communicator& world) {
  const ParameterLayout whole = layout_of(model);
  const std::vector<DiskTensor> disk = disk_tensors(model, whole);
  std::vector<std::int64_t> sizes;
  const auto places = places_of(disk, whole, sizes);
  double all = 0;
  std::vector<const std::vector<double>*> expected;
  for (std::size_t t = 0; t < disk.size(); ++t) {
    const auto found = golden.find(disk[t].name);
    require(found != golden.end(), "golden.h5 has no tensor {}", disk[t].name);
    require(static_cast<std::int64_t>(found->second.size()) == sizes[t],
            "{} has {} elements in golden.h5, {} in the model", disk[t].name,
            found->second.size(), sizes[t]);
    expected.push_back(&found->second);
    for (const double v : found->second) all += v * v;
  }
  require(golden.size() == disk.size(), "golden.h5 has {} tensors, the model has {}",
          golden.size(), disk.size());

  // By tensor: squared error, squared size, squared value, elements.
  std::vector<double> sums(4 * disk.size(), 0);
  std::int64_t at = 0;
  for (const FlatRange& part : parts) {
    for (const Parameter& p : local.tensors) {
      for (const LogicalRun& run : logical_runs(p, part.begin, part.count)) {
        const GoldenPlace place = places.at(p.name);
        double* sum = sums.data() + 4 * place.tensor;
        for (std::int64_t i = 0; i < run.count; ++i) {
          const double got = values.at(static_cast<std::size_t>(at + run.local + i - part.begin));
          const double want =
              (*expected[place.tensor])[static_cast<std::size_t>(place.first + run.first + i)];
          sum[0] += (got - want) * (got - want);
          sum[1] += want * want;
          sum[2] += got * got;
        }
        sum[3] += static_cast<double>(run.count);
      }
    }
    at += part.count;
  }
  world.all_reduce(sums, Reduce::sum);

  TensorsComparison result;
  const double floor = 1e-6 * std::sqrt(all);
  double norm = 0;
  for (std::size_t t = 0; t < disk.size(); ++t) {
    const double* sum = sums.data() + 4 * t;
    require(sum[3] == static_cast<double>(sizes[t]),
            "{} of {} elements of {} are owned by a rank: an element is owned by several or by none",
            sum[3], sizes[t], disk[t].name);
    const double scale = std::max(std::sqrt(sum[1]), floor);
    result.tensors.push_back(
        {disk[t].name, scale > 0 ? std::sqrt(sum[0]) / scale : std::sqrt(sum[0])});
    norm += sum[2];
  }
  result.norm = std::sqrt(norm);
  return result;
}

}  // namespace bdlm
