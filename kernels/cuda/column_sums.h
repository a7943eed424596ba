// SPDX-License-Identifier: Apache-2.0
// The second half of a sum over rows: blocks have left one row each, these are added in order.
#pragma once

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/view.h"

namespace bdlm::cuda {

/// sum [1, cols] += the rows of partial. A is float or double.
template <class A>
void add_partials(Stream stream, View<const A> partial, View<A> sum);

}  // namespace bdlm::cuda
