// SPDX-License-Identifier: Apache-2.0
// A mixture's router: probabilities and the choice of experts. A warp has a row; lane l has the
// experts l, l + 32, ... and alone reads and writes them, so little has to be synchronised.
#include <cmath>
#include <limits>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bdlm::cuda {
namespace {

constexpr unsigned row_warps = 4;
constexpr int none = std::numeric_limits<int>::max();

template <class A>
constexpr A infinity = std::numeric_limits<A>::infinity();

/// NaN stands for what is out, so it is no choice itself.
template <class A>
CU_INLINE A as_choice(A x) {
  return x == x ? x : -infinity<A>;
}

/// The first index from `from` on that is this lane's.
CU_INLINE int own(int from) {
  return from + static_cast<int>((threadIdx.x - static_cast<unsigned>(from)) % lanes);
}

template <class A>
struct Best {
  A value;
  int at;  // none when all are out
};

/// The first of the largest in [first, last), that at `except` left out. For all lanes.
template <class A>
CU_INLINE Best<A> first_largest(const A* values, int first, int last, int except) {
  Best<A> best{0, none};
  for (int j = own(first); j < last; j += lanes) {
    const A x = values[j];
    if (x == x && j != except && (best.at == none || x > best.value)) best = {x, j};
  }
#pragma unroll
  for (unsigned offset = lanes / 2; offset > 0; offset /= 2) {
    const Best<A> other{__shfl_xor_sync(all_lanes, best.value, offset),
                        __shfl_xor_sync(all_lanes, best.at, offset)};
    if (other.at == none) continue;
    const bool ahead = other.value > best.value ||
                       (other.value == best.value && other.at < best.at);
    if (best.at == none || ahead) best = other;
  }
  return best;
}

template <class A>
CU_INLINE void take_out(A* values, int at) {
  if (own(at) == at) values[at] = std::numeric_limits<A>::quiet_NaN();
}

template <class A>
CU_INLINE void row_probabilities(const Router& router, const A* x, A* p) {
  const int experts = static_cast<int>(router.experts);
  if (router.sigmoid) {
    for (int e = threadIdx.x; e < experts; e += lanes) p[e] = A(1) / (A(1) + std::exp(-x[e]));
    return;
  }
  A largest = -infinity<A>;
  double sum = 0;
  for (int e = threadIdx.x; e < experts; e += lanes) largest = Largest()(largest, x[e]);
  largest = combine_lanes(largest, lanes, Largest());
  for (int e = threadIdx.x; e < experts; e += lanes) {
    const A power = std::exp(x[e] - largest);
    p[e] = power;
    sum += static_cast<double>(power);
  }
  const A whole = static_cast<A>(warp_sum(sum));
  for (int e = threadIdx.x; e < experts; e += lanes) p[e] /= whole;
}

/// Leaves the experts of the best groups in `choice`; sums [groups].
template <class A>
CU_INLINE void keep_best_groups(const Router& router, A* choice, A* sums) {
  const int groups = static_cast<int>(router.groups), experts = static_cast<int>(router.experts);
  const int size = experts / groups;
  for (int g = 0; g < groups; ++g) {
    const Best<A> best = first_largest(choice, g * size, (g + 1) * size, none);
    const Best<A> second = first_largest(choice, g * size, (g + 1) * size, best.at);
    if (own(g) == g) sums[g] = as_choice(best.value + second.value);
  }
  for (int s = 0; s < static_cast<int>(router.best_groups); ++s) {
    take_out(sums, first_largest(sums, 0, groups, none).at);
  }
  __syncwarp(all_lanes);  // from here on a lane looks at the sums of others
  for (int e = threadIdx.x; e < experts; e += lanes) {
    if (sums[e / size] == sums[e / size]) take_out(choice, e);
  }
}

/// chosen may be null: probabilities only. logits and probabilities may be the same.
template <class A>
__global__ void __launch_bounds__(row_warps* lanes)
    choose(Router router, View<const A> logits, const A* bias, View<A> probabilities,
           std::int32_t* chosen) {
  CU_DYNAMIC_SHARED(A, shared);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * row_warps + threadIdx.y;
  if (row >= logits.rows) return;
  const int experts = static_cast<int>(router.experts);
  A* p = probabilities.data + row * probabilities.stride;
  row_probabilities(router, logits.data + row * logits.stride, p);
  if (chosen == nullptr) return;

  A* choice = shared + threadIdx.y * (router.experts + router.groups);
  for (int e = threadIdx.x; e < experts; e += lanes) {
    choice[e] = as_choice(bias != nullptr ? p[e] + bias[e] : p[e]);
  }
  if (router.groups > 1) keep_best_groups(router, choice, choice + experts);
  std::int32_t* mine = chosen + row * router.chosen;
  for (int s = 0; s < static_cast<int>(router.chosen); ++s) {
    const int best = first_largest(choice, 0, experts, none).at;
    take_out(choice, best);
    if (threadIdx.x == 0) mine[s] = best;
  }
}

}  // namespace

template <class A>
void choose_experts(Stream stream, const Router& router, View<const A> logits, const A* bias,
                    View<A> probabilities, std::int32_t* chosen) {
  const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(logits.rows, row_warps));
  const auto each = static_cast<std::size_t>(router.experts + router.groups) * sizeof(A);
  launch("choose_experts", choose<A>,
         {dim3(blocks), dim3(lanes, row_warps), chosen != nullptr ? row_warps * each : 0, stream},
         router, logits, bias, probabilities, chosen);
}

template void choose_experts(Stream, const Router&, View<const float>, const float*, View<float>,
                             std::int32_t*);
template void choose_experts(Stream, const Router&, View<const double>, const double*,
                             View<double>, std::int32_t*);

}  // namespace bdlm::cuda
