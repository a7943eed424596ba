// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "data/row.h"

namespace bdlm {

/// xxHash64 of everything that training sees of a row: index, tokens, documents, views, weights.
/// Sums of it (modulo 2^64) over the rows of a step show that two runs saw the same data and noise.
std::uint64_t fingerprint(const CorruptedRow& row);

}  // namespace bdlm
