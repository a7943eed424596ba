// SPDX-License-Identifier: Apache-2.0
// AdamW on flat ranges and the norm for gradient clipping.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/cover.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector_io.cuh"

namespace bdlm::cuda {
namespace {

constexpr unsigned norm_threads = 512;
constexpr int norm_vectors = 4;  // that a thread loads at once
constexpr unsigned adamw_threads = 256;

/// Sum of the squares of the pieces blockIdx.x, + gridDim.x, ...: a piece is what a block loads at
/// once, and does not cross the end of a row.
template <class A, int N>
__global__ void __launch_bounds__(norm_threads) sum_squares(View<const A> x, double* partial) {
  __shared__ double sums[lanes];
  constexpr std::int64_t piece = std::int64_t{norm_threads} * norm_vectors * N;
  const std::int64_t across = ceil_div(x.cols, piece);
  double sum = 0;
  for (std::int64_t p = blockIdx.x; p < x.rows * across; p += gridDim.x) {
    const A* in = x.data + p / across * x.stride;
    const std::int64_t first = p % across * piece + threadIdx.x * N;
    Vector<A, N> v[norm_vectors] = {};
#pragma unroll
    for (int i = 0; i < norm_vectors; ++i) {
      const std::int64_t col = first + i * std::int64_t{norm_threads} * N;
      if (col < x.cols) v[i] = load_vector<N>(in + col);
    }
#pragma unroll
    for (int i = 0; i < norm_vectors; ++i) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const double value = load(v[i].at[k]);
        sum += value * value;
      }
    }
  }
  sum = row_sum(sum, sums);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(norm_threads)
    add_squares(const double* partial, int count, double* result) {
  __shared__ double sums[lanes];
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += norm_threads) sum += partial[i];
  sum = row_sum(sum, sums);
  if (threadIdx.x == 0) *result = sum;
}

/// The step's constants, computed once in double.
template <class A>
struct AdamWConstants {
  A beta1, beta2, rest1, rest2, rate, correction, eps, gradient_scale, decay;

  explicit AdamWConstants(const AdamWArgs& args)
      : beta1(static_cast<A>(args.beta1)),
        beta2(static_cast<A>(args.beta2)),
        rest1(static_cast<A>(1 - args.beta1)),
        rest2(static_cast<A>(1 - args.beta2)),
        rate(static_cast<A>(args.lr / args.correction1)),
        correction(static_cast<A>(1 / std::sqrt(args.correction2))),
        eps(static_cast<A>(args.eps)),
        gradient_scale(static_cast<A>(args.gradient_scale)),
        decay(static_cast<A>(args.lr * args.weight_decay)) {}
};

/// The run that holds element i: the last that begins at or before it.
CU_INLINE std::int64_t run_of(const std::int64_t* begin, std::int64_t runs, std::int64_t i) {
  std::int64_t low = 0, high = runs;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    if (begin[middle] <= i) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// A thread has N elements. compute may be master: both are written after all reads.
template <class T, int N>
__global__ void __launch_bounds__(adamw_threads)
    update(AdamWConstants<sum_t<T>> c, const std::int64_t* __restrict__ begin,
           const std::uint8_t* __restrict__ decay, std::int64_t runs, std::int64_t count,
           sum_t<T>* master, const sum_t<T>* gradient, sum_t<T>* first, sum_t<T>* second,
           T* compute) {
  using A = sum_t<T>;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * adamw_threads + threadIdx.x) * N;
  if (i >= count) return;
  Vector<A, N> p = load_vector<N>(master + i), m = load_vector<N>(first + i),
               v = load_vector<N>(second + i);
  const Vector<A, N> grad = load_vector<N>(gradient + i);
  std::int64_t run = run_of(begin, runs, i);
  Vector<T, N> rounded;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    while (begin[run + 1] <= i + k) ++run;
    const A rate = decay[run] != 0 ? c.decay : A(0);
    const A g = grad.at[k] * c.gradient_scale;
    m.at[k] = c.beta1 * m.at[k] + c.rest1 * g;
    v.at[k] = c.beta2 * v.at[k] + c.rest2 * g * g;
    const A change = c.rate * m.at[k] / (std::sqrt(v.at[k]) * c.correction + c.eps);
    // Not p * (1 - rate): in float the rounding of 1 - rate is a percent of the decay.
    p.at[k] -= rate * p.at[k] + change;
    store(rounded.at[k], p.at[k]);
  }
  store_vector<N>(first + i, m);
  store_vector<N>(second + i, v);
  store_vector<N>(master + i, p);
  store_vector<N>(compute + i, rounded);
}

}  // namespace

template <class A>
void squared_norm(Stream stream, View<const A> x, double* partial, double* result) {
  merge_rows(x);
  const auto run = [&]<int N>() -> std::int64_t {
    constexpr std::int64_t piece = std::int64_t{norm_threads} * norm_vectors * N;
    const std::int64_t pieces = x.rows * ceil_div(x.cols, piece);
    const std::int64_t blocks = std::min(pieces, most_partials);
    launch("squared_norm", sum_squares<A, N>,
           {dim3(static_cast<unsigned>(blocks)), dim3(norm_threads), 0, stream}, x, partial);
    return blocks;
  };
  constexpr int wide = vector_width<A>();
  const std::int64_t blocks =
      fits<wide>(x) ? run.template operator()<wide>() : run.template operator()<1>();
  launch("squared_norm", add_squares, {dim3(1), dim3(norm_threads), 0, stream}, partial,
         static_cast<int>(blocks), result);
}

template <class T>
void adamw(Stream stream, const AdamWArgs& args, const std::int64_t* begin,
           const std::uint8_t* decay, std::int64_t runs, View<sum_t<T>> master,
           View<const sum_t<T>> gradient, View<sum_t<T>> first, View<sum_t<T>> second,
           View<T> compute) {
  using A = sum_t<T>;
  const std::int64_t count = master.cols;
  if (master.rows == 0 || count == 0) return;
  const auto run = [&]<int N>() {
    const std::int64_t blocks = ceil_div<std::int64_t>(count, adamw_threads * N);
    launch("adamw", update<T, N>,
           {dim3(static_cast<unsigned>(blocks)), dim3(adamw_threads), 0, stream},
           AdamWConstants<A>(args), begin, decay, runs, count, master.data, gradient.data,
           first.data, second.data, compute.data);
  };
  constexpr int wide = vector_width<A>();
  if (fits<wide>(master) && fits<wide>(gradient) && fits<wide>(first) && fits<wide>(second) &&
      fits<wide>(compute)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
}

template void squared_norm(Stream, View<const double>, double*, double*);
template void squared_norm(Stream, View<const float>, double*, double*);
template void squared_norm(Stream, View<const bfloat16>, double*, double*);
#define BDLM_ADAMW(T)                                                                        \
  template void adamw<T>(Stream, const AdamWArgs&, const std::int64_t*, const std::uint8_t*, \
                         std::int64_t, View<sum_t<T>>, View<const sum_t<T>>, View<sum_t<T>>, \
                         View<sum_t<T>>, View<T>);
BDLM_ADAMW(double)
BDLM_ADAMW(float)
BDLM_ADAMW(bfloat16)

}  // namespace bdlm::cuda
