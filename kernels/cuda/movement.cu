// SPDX-License-Identifier: Apache-2.0
// Copies, sums and row lists: everything that moves data without looking at it, in one kernel.
#include "kernels/cuda/cover.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {
namespace {

constexpr int pieces = 4;

template <class Y, class X>
CU_INLINE void assign(Y& y, X x) {
  if constexpr (std::is_same_v<X, Y>) {
    y = x;  // to the bit: a NaN keeps its payload
  } else {
    store(y, load(x));
  }
}

template <class Y, class X>
CU_INLINE void increase(Y& y, X x) {
  using A = std::common_type_t<sum_t<X>, sum_t<Y>>;
  store(y, static_cast<A>(load(y)) + static_cast<A>(load(x)));
}

/// y[to[i]] = x[from[i]], or +=; a null list stands for 0, 1, 2, ...
template <class X, class Y, int N, bool accumulate>
__global__ void __launch_bounds__(cover_threads)
    move_rows(Cover<N, pieces> cover, View<const X> x, const std::int32_t* __restrict__ from,
              View<Y> y, const std::int32_t* __restrict__ to, std::int64_t rows) {
  const std::int64_t row = cover.row();
  if (row >= rows) return;
  const X* in = x.data + (from != nullptr ? from[row] : row) * x.stride;
  Y* out = y.data + (to != nullptr ? to[row] : row) * y.stride;
  Vector<X, N> a[pieces];
  Vector<Y, N> b[pieces];
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
    const std::int64_t col = cover.col(p);
    if (col >= x.cols) continue;
    a[p] = load_vector<N>(in + col);
    if constexpr (accumulate) b[p] = load_vector<N>(out + col);
  }
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
    const std::int64_t col = cover.col(p);
    if (col >= x.cols) continue;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if constexpr (accumulate) {
        increase(b[p].at[k], a[p].at[k]);
      } else {
        assign(b[p].at[k], a[p].at[k]);
      }
    }
    store_vector<N>(out + col, b[p]);
  }
}

template <bool accumulate, class X, class Y>
void move(const char* name, Stream stream, View<const X> x, const std::int32_t* from, View<Y> y,
          const std::int32_t* to, std::int64_t rows) {
  if (rows == 0 || x.cols == 0) return;
  const auto run = [&]<int N>() {
    const CoverShape shape = cover<N, pieces>(rows, x.cols);
    launch(name, move_rows<X, Y, N, accumulate>, {shape.grid, shape.block, 0, stream},
           Cover<N, pieces>{shape.across}, x, from, y, to, rows);
  };
  constexpr int wide = vector_width<X, Y>();
  if (fits<wide>(x) && fits<wide>(y)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
}

/// y[i] += the rows of x that the list has for it.
template <class X, class Y, int N>
__global__ void __launch_bounds__(cover_threads)
    add_lists(Cover<N, 1> cover, View<const X> x, const std::int32_t* __restrict__ places,
              std::int64_t count, View<Y> y) {
  using A = std::common_type_t<sum_t<X>, sum_t<Y>>;
  const std::int64_t row = cover.row(), col = cover.col(0);
  if (row >= y.rows || col >= y.cols) return;
  Y* out = y.data + row * y.stride + col;
  Vector<Y, N> b = load_vector<N>(out);
  A sum[N];
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = static_cast<A>(load(b.at[k]));
#pragma unroll 4
  for (std::int64_t n = row * count; n < (row + 1) * count; ++n) {
    const Vector<X, N> a = load_vector<N>(x.data + places[n] * x.stride + col);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += static_cast<A>(load(a.at[k]));
  }
#pragma unroll
  for (int k = 0; k < N; ++k) store(b.at[k], sum[k]);
  store_vector<N>(out, b);
}

}  // namespace

template <class X, class Y>
void copy(Stream stream, View<const X> x, View<Y> y) {
  merge_rows(x, y);
  move<false>("copy", stream, x, nullptr, y, nullptr, x.rows);
}

template <class X, class Y>
void add(Stream stream, View<const X> x, View<Y> y) {
  merge_rows(x, y);
  move<true>("add", stream, x, nullptr, y, nullptr, x.rows);
}

template <class T>
void gather_rows(Stream stream, View<const T> x, const std::int32_t* rows, View<T> y) {
  move<false>("gather_rows", stream, x, rows, y, nullptr, y.rows);
}

template <class X, class Y>
void scatter_add_rows(Stream stream, View<const X> x, const std::int32_t* rows, View<Y> y) {
  move<true>("scatter_add_rows", stream, x, nullptr, y, rows, x.rows);
}

template <class X, class Y>
void add_gathered_rows(Stream stream, View<const X> x, const std::int32_t* places,
                       std::int64_t count, View<Y> y) {
  const auto run = [&]<int N>() {
    const CoverShape shape = cover<N, 1>(y.rows, y.cols);
    launch("add_gathered_rows", add_lists<X, Y, N>, {shape.grid, shape.block, 0, stream},
           Cover<N, 1>{shape.across}, x, places, count, y);
  };
  constexpr int wide = vector_width<X, Y>();
  if (fits<wide>(x) && fits<wide>(y)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
}

#define BDLM_MOVEMENT(X, Y)                                                                   \
  template void copy<X, Y>(Stream, View<const X>, View<Y>);                                   \
  template void add<X, Y>(Stream, View<const X>, View<Y>);                                    \
  template void scatter_add_rows<X, Y>(Stream, View<const X>, const std::int32_t*, View<Y>);  \
  template void add_gathered_rows<X, Y>(Stream, View<const X>, const std::int32_t*,           \
                                        std::int64_t, View<Y>);
#define BDLM_MOVEMENT_FROM(X) \
  BDLM_MOVEMENT(X, double)    \
  BDLM_MOVEMENT(X, float)     \
  BDLM_MOVEMENT(X, bfloat16)  \
  template void gather_rows<X>(Stream, View<const X>, const std::int32_t*, View<X>);
BDLM_MOVEMENT_FROM(double)
BDLM_MOVEMENT_FROM(float)
BDLM_MOVEMENT_FROM(bfloat16)

}  // namespace bdlm::cuda
