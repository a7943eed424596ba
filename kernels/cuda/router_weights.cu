// SPDX-License-Identifier: Apache-2.0
// What follows a router's choice: the weights of the chosen experts, how the rows are spread over
// the experts, and the gradient of the logits.
#include <algorithm>
#include <limits>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bdlm::cuda {
namespace {

constexpr unsigned block_threads = 128;
constexpr unsigned row_warps = 4;

/// A thread has a row.
template <class A>
__global__ void __launch_bounds__(block_threads)
    weights_of(Router router, View<const A> probabilities,
               const std::int32_t* __restrict__ chosen, View<A> weights) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (row >= weights.rows) return;
  const A* p = probabilities.data + row * probabilities.stride;
  const std::int32_t* experts = chosen + row * router.chosen;
  A* out = weights.data + row * weights.stride;
  const int k = static_cast<int>(router.chosen);
  A sum = 0;
  for (int s = 0; s < k; ++s) sum += p[experts[s]];
  const A whole = router.normalize ? sum + static_cast<A>(weight_floor) : A(1);
  for (int s = 0; s < k; ++s) out[s] = p[experts[s]] / whole * static_cast<A>(router.scaling);
}

/// Block (c, s, r): the experts of chunk c over the rows of slice s that belong to the packed row
/// r. partial [packed rows * slices, 2 E].
template <class A>
__global__ void __launch_bounds__(block_threads)
    sum_slices(Router router, View<const A> probabilities,
               const std::int32_t* __restrict__ chosen, const std::int32_t* __restrict__ packed,
               std::int64_t slice, View<A> partial) {
  const int e = static_cast<int>(blockIdx.x * block_threads + threadIdx.x);
  if (e >= router.experts) return;
  const int k = static_cast<int>(router.chosen), mine = static_cast<int>(blockIdx.z);
  const std::int64_t first = blockIdx.y * slice;
  const std::int64_t last = first + slice < probabilities.rows ? first + slice : probabilities.rows;
  A times = 0, sum = 0;
#pragma unroll 4
  for (std::int64_t i = first; i < last; ++i) {
    if (packed[i] != mine) continue;
    sum += probabilities.data[i * probabilities.stride + e];
    for (int s = 0; s < k; ++s) times += chosen[i * k + s] == e ? A(1) : A(0);
  }
  A* out = partial.data + (std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * partial.stride;
  out[e] = times;
  out[router.experts + e] = sum;
}

/// Block (c, r): sums[r] += the slices of the packed row r, in order.
template <class A>
__global__ void __launch_bounds__(block_threads)
    add_slices(View<const A> partial, std::int64_t slices, View<A> sums) {
  const std::int64_t col = std::int64_t{blockIdx.x} * block_threads + threadIdx.x;
  if (col >= sums.cols) return;
  const A* from = partial.data + blockIdx.y * slices * partial.stride + col;
  A* to = sums.data + blockIdx.y * sums.stride + col;
  A sum = 0;
#pragma unroll 4
  for (std::int64_t s = 0; s < slices; ++s) sum += from[s * partial.stride];
  *to += sum;
}

/// A warp has a row; `shared` takes the gradient of its probabilities. dlogits and probabilities may
/// be the same.
template <class A>
__global__ void __launch_bounds__(row_warps* lanes)
    backward(Router router, View<const A> probabilities, const std::int32_t* __restrict__ chosen,
             View<const A> dweights, View<const A> balance, const std::int32_t* packed,
             View<A> dlogits) {
  CU_DYNAMIC_SHARED(A, shared);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * row_warps + threadIdx.y;
  if (row >= dlogits.rows) return;
  const int experts = static_cast<int>(router.experts), k = static_cast<int>(router.chosen);
  const A* p = probabilities.data + row * probabilities.stride;
  const std::int32_t* list = chosen + row * k;
  const A* dweight = dweights.data + row * dweights.stride;
  A* dp = shared + threadIdx.y * router.experts;

  const std::int32_t from = balance.data != nullptr ? packed[row] : -1;
  for (int e = threadIdx.x; e < experts; e += lanes) {
    dp[e] = from >= 0 ? balance.data[from * balance.stride + e] : A(0);
  }
  A sum = 0, mixed = 0;
  for (int s = threadIdx.x; s < k; s += lanes) {
    const A x = p[list[s]];
    sum += x;
    mixed += x * dweight[s];
  }
  sum = warp_sum(sum) + static_cast<A>(weight_floor);
  mixed = warp_sum(mixed);
  __syncwarp(all_lanes);  // dp is there; p is read by others only up to here
  for (int s = threadIdx.x; s < k; s += lanes) {
    const A through = router.normalize ? (dweight[s] - mixed / sum) / sum : dweight[s];
    dp[list[s]] += static_cast<A>(router.scaling) * through;
  }
  __syncwarp(all_lanes);  // the chosen experts' part too
  A mean = 0;
  if (!router.sigmoid) {
    for (int e = threadIdx.x; e < experts; e += lanes) mean += dp[e] * p[e];
    mean = warp_sum(mean);
  }
  A* out = dlogits.data + row * dlogits.stride;
  for (int e = threadIdx.x; e < experts; e += lanes) {
    const A slope = router.sigmoid ? p[e] * (A(1) - p[e]) : p[e];
    out[e] = slope * (dp[e] - mean);
  }
}

}  // namespace

template <class A>
void expert_weights(Stream stream, const Router& router, View<const A> probabilities,
                    const std::int32_t* chosen, View<A> weights) {
  const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(weights.rows, block_threads));
  launch("expert_weights", weights_of<A>, {dim3(blocks), dim3(block_threads), 0, stream}, router,
         probabilities, chosen, weights);
}

std::int64_t balance_slices(std::int64_t rows) {
  constexpr std::int64_t shortest = 64, most = 128;
  return std::clamp<std::int64_t>(ceil_div(rows, shortest), 1, most);
}

template <class A>
void balance_sums(Stream stream, const Router& router, View<const A> probabilities,
                  const std::int32_t* chosen, const std::int32_t* packed, View<A> partial,
                  View<A> sums) {
  if (probabilities.rows == 0 || sums.rows == 0) return;
  const std::int64_t slices = balance_slices(probabilities.rows);
  const auto across = [](std::int64_t cols) {
    return static_cast<unsigned>(ceil_div<std::int64_t>(cols, block_threads));
  };
  const auto rows = static_cast<unsigned>(sums.rows);
  launch("balance_sums", sum_slices<A>,
         {dim3(across(router.experts), static_cast<unsigned>(slices), rows), dim3(block_threads),
          0, stream},
         router, probabilities, chosen, packed, ceil_div(probabilities.rows, slices), partial);
  launch("balance_sums", add_slices<A>,
         {dim3(across(sums.cols), rows), dim3(block_threads), 0, stream},
         View<const A>{partial.data, partial.rows, partial.cols, partial.stride}, slices, sums);
}

template <class A>
void router_backward(Stream stream, const Router& router, View<const A> probabilities,
                     const std::int32_t* chosen, View<const A> dweights, View<const A> balance,
                     const std::int32_t* packed, View<A> dlogits) {
  const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(dlogits.rows, row_warps));
  const auto each = static_cast<std::size_t>(router.experts) * sizeof(A);
  launch("router_backward", backward<A>,
         {dim3(blocks), dim3(lanes, row_warps), row_warps * each, stream}, router, probabilities,
         chosen, dweights, balance, packed, dlogits);
}

#define BDLM_ROUTER(A)                                                                           \
  template void expert_weights(Stream, const Router&, View<const A>, const std::int32_t*,        \
                               View<A>);                                                         \
  template void balance_sums(Stream, const Router&, View<const A>, const std::int32_t*,          \
                             const std::int32_t*, View<A>, View<A>);                             \
  template void router_backward(Stream, const Router&, View<const A>, const std::int32_t*,       \
                                View<const A>, View<const A>, const std::int32_t*, View<A>);
BDLM_ROUTER(double)
BDLM_ROUTER(float)

}  // namespace bdlm::cuda
