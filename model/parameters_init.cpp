// SPDX-License-Identifier: Apache-2.0
// A part's elements in their logical tensors, and random initialisation.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include "kernels/philox.h"
#include "model/parameters.h"

namespace bdlm {
namespace {

/// FNV-1a (Fowler, Noll, Vo). Weights are counted by their name, not by their place, so that a
/// tensor starts alike whatever else the model has.
std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

/// Elements 2 pair and 2 pair + 1 of a tensor: both results of one Box-Muller transform.
std::array<double, 2> normal_pair(const Philox& random, std::uint64_t tensor, std::int64_t pair) {
  const auto bits = random.bits(tensor, static_cast<std::uint64_t>(pair));
  const auto unit = [](std::uint32_t high, std::uint32_t low) {  // in (0, 1): log of 0 is infinite
    const std::uint64_t wide = (static_cast<std::uint64_t>(high) << 32) | low;
    return (static_cast<double>(wide >> 12) + 0.5) * 0x1.0p-52;
  };
  const double radius = std::sqrt(-2 * std::log(unit(bits[0], bits[1])));
  const double angle = 2 * std::numbers::pi * unit(bits[2], bits[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// Elements [first, last) of one matrix.
void fill_normal(const Philox& random, std::uint64_t id, double deviation, std::int64_t first,
                 std::int64_t last, double* out) {
#pragma omp parallel for schedule(static) if (last - first > 1 << 14)
  for (std::int64_t pair = first / 2; pair < (last + 1) / 2; ++pair) {
    const auto values = normal_pair(random, id, pair);
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t element = 2 * pair + half;
      if (element >= first && element < last) {
        out[element - first] = deviation * values[static_cast<std::size_t>(half)];
      }
    }
  }
}

}  // namespace

std::vector<LogicalRun> logical_runs(const Parameter& p, std::int64_t begin, std::int64_t count) {
  std::vector<LogicalRun> runs;
  std::int64_t first = std::max(begin, p.offset) - p.offset;  // in the part
  const std::int64_t last = std::min(begin + count, p.offset + p.size()) - p.offset;
  if (first >= last) return runs;
  const bool whole_rows = p.cols == p.whole_cols;
  if (!whole_rows) runs.reserve(static_cast<std::size_t>((last - 1) / p.cols - first / p.cols + 1));
  while (first < last) {
    const std::int64_t row = first / p.cols, col = first % p.cols;
    const std::int64_t length = whole_rows ? last - first : std::min(p.cols - col, last - first);
    runs.push_back({(p.first_row + row) * p.whole_cols + p.first_col + col, length,
                    p.offset + first});
    first += length;
  }
  return runs;
}

void initialize(const ModelConfig& config, const ParameterLayout& layout, std::uint64_t seed,
                std::int64_t begin, std::int64_t count, double* out) {
  require(begin >= 0 && count >= 0 && begin + count <= layout.size,
          "elements {}..{} are not within the {} parameters", begin, begin + count, layout.size);
  const Philox random(seed, RandomPurpose::initial_weights);
  std::fill_n(out, count, 0.0);
  // The first tensor that is not wholly before `begin`: there may be thousands.
  const auto from = std::ranges::partition_point(layout.tensors, [&](const Parameter& tensor) {
    return tensor.offset + tensor.size() <= begin;
  });
  for (auto next = from; next != layout.tensors.end() && next->offset < begin + count; ++next) {
    const Parameter& tensor = *next;
    const std::int64_t first = std::max(begin, tensor.offset);
    const std::int64_t last = std::min(begin + count, tensor.offset + tensor.size());
    if (first >= last) continue;
    if (tensor.vector) {
      if (!tensor.name.ends_with("bias")) std::fill(out + (first - begin), out + (last - begin), 1);
      continue;
    }
    const std::uint64_t id = hash_of(tensor.name);
    const auto runs = logical_runs(tensor, first, last - first);
#pragma omp parallel for schedule(static) if (runs.size() > 1 && last - first > 1 << 14)
    for (const LogicalRun& run : runs) {
      fill_normal(random, id, config.initializer_range, run.first, run.first + run.count,
                  out + (run.local - begin));
    }
  }
}

}  // namespace bdlm
