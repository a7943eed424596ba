// SPDX-License-Identifier: Apache-2.0
#include "data/fingerprint.h"

#include <xxhash.h>

#include <vector>

namespace bdlm {
namespace {

template <class T>
std::uint64_t mix(const std::vector<T>& values, std::uint64_t seed) {
  return XXH64(values.data(), values.size() * sizeof(T), seed);
}

}  // namespace

std::uint64_t fingerprint(const CorruptedRow& row) {
  std::uint64_t hash = XXH64(&row.clean.index, sizeof row.clean.index, 0);
  hash = mix(row.clean.tokens, hash);
  hash = mix(row.clean.documents, hash);
  for (const auto& view : row.views) hash = mix(view, hash);
  for (const auto& weights : row.weights) hash = mix(weights, hash);
  return mix(row.ar_weights, hash);
}

}  // namespace bdlm
