// SPDX-License-Identifier: Apache-2.0
// Copies, sums and row lists: everything that moves data without looking at it.
#include <cstring>

#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"

namespace bdlm {
namespace {

/// One row where both are contiguous: fewer and longer pieces.
void merge_rows(Tensor& x, Tensor& y) {
  if (!x.contiguous() || !y.contiguous()) return;
  x = x.reshape(1, x.size());
  y = y.reshape(1, y.size());
}

template <class X, class Y>
void copy_elements(const X* x, Y* y, std::int64_t count) {
  if constexpr (std::is_same_v<X, Y>) {
    std::memcpy(y, x, static_cast<std::size_t>(count) * sizeof(X));
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) store(y[i], load(x[i]));
  }
}

template <class X, class Y>
void add_elements(const X* x, Y* y, std::int64_t count) {
  using A = std::common_type_t<accumulate_t<X>, accumulate_t<Y>>;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    store(y[i], static_cast<A>(load(y[i])) + static_cast<A>(load(x[i])));
  }
}

/// y += the rows of that list, in pieces whose sums stay in registers or the nearest cache.
template <class X, class Y>
void add_rows(const Rows<X>& x, const std::int32_t* rows, std::int64_t count, Y* y,
              std::int64_t cols) {
  using A = std::common_type_t<accumulate_t<X>, accumulate_t<Y>>;
  constexpr std::int64_t piece = 256;
  A sums[piece];
  for (std::int64_t begin = 0; begin < cols; begin += piece) {
    const std::int64_t width = std::min(piece, cols - begin);
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) sums[j] = static_cast<A>(load(y[begin + j]));
    for (std::int64_t n = 0; n < count; ++n) {
      const X* row = x[rows[n]] + begin;
#pragma omp simd
      for (std::int64_t j = 0; j < width; ++j) sums[j] += static_cast<A>(load(row[j]));
    }
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) store(y[begin + j], sums[j]);
  }
}

/// body.operator()<X, Y>() for the types of x and y.
template <class Body>
void dispatch_pair(const Tensor& x, const Tensor& y, Body&& body) {
  dispatch(x.dtype, [&]<class X>() {
    dispatch(y.dtype, [&]<class Y>() { body.template operator()<X, Y>(); });
  });
}

}  // namespace

void CpuDevice::zero(Tensor x) {
  const auto element = static_cast<std::int64_t>(size_of(x.dtype));
  if (x.empty()) return;
  if (x.contiguous()) x = x.reshape(1, x.size());
  auto* bytes = static_cast<std::byte*>(x.data);
  parallel_elements(threads_, x.rows, x.cols,
                    [&](std::int64_t row, std::int64_t first, std::int64_t last) {
                      std::memset(bytes + (row * x.stride + first) * element, 0,
                                  static_cast<std::size_t>((last - first) * element));
                    });
}

void CpuDevice::copy(Tensor x, Tensor y) {
  require_shape("copy: y", y, x.rows, x.cols);
  if (x.empty()) return;
  merge_rows(x, y);
  dispatch_pair(x, y, [&]<class X, class Y>() {
    const Rows<X> from(x);
    const Rows<Y> to(y);
    parallel_elements(threads_, x.rows, x.cols,
                      [&](std::int64_t row, std::int64_t first, std::int64_t last) {
                        copy_elements(from[row] + first, to[row] + first, last - first);
                      });
  });
}

void CpuDevice::add(Tensor x, Tensor y) {
  require_shape("add: y", y, x.rows, x.cols);
  if (x.empty()) return;
  merge_rows(x, y);
  dispatch_pair(x, y, [&]<class X, class Y>() {
    const Rows<X> from(x);
    const Rows<Y> to(y);
    parallel_elements(threads_, x.rows, x.cols,
                      [&](std::int64_t row, std::int64_t first, std::int64_t last) {
                        add_elements(from[row] + first, to[row] + first, last - first);
                      });
  });
}

void CpuDevice::gather_rows(Tensor x, const std::int32_t* rows, Tensor y) {
  check_gather_rows(x, y);
  require_indices("gather_rows", rows, y.rows, x.rows);
  dispatch(x.dtype, [&]<class T>() {
    const Rows<T> from(x), to(y);
    parallel_ranges(threads_, y.rows, y.size(), [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        copy_elements(from[rows[i]], to[i], y.cols);
      }
    });
  });
}

void CpuDevice::scatter_add_rows(Tensor x, const std::int32_t* rows, Tensor y) {
  check_scatter_add_rows(x, y);
  require_indices("scatter_add_rows", rows, x.rows, y.rows);
  dispatch_pair(x, y, [&]<class X, class Y>() {
    const Rows<X> from(x);
    const Rows<Y> to(y);
    parallel_ranges(threads_, x.rows, x.size(), [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        add_elements(from[i], to[rows[i]], x.cols);
      }
    });
  });
}

void CpuDevice::add_gathered_rows(Tensor x, const std::int32_t* places, std::int64_t count,
                                  Tensor y) {
  check_add_gathered_rows(x, count, y);
  require_indices("add_gathered_rows", places, y.rows * count, x.rows);
  dispatch_pair(x, y, [&]<class X, class Y>() {
    const Rows<X> from(x);
    const Rows<Y> to(y);
    parallel_ranges(threads_, y.rows, y.size() * (count + 1),
                    [&](int, std::int64_t first, std::int64_t last) {
                      for (std::int64_t i = first; i < last; ++i) {
                        add_rows(from, places + i * count, count, to[i], y.cols);
                      }
                    });
  });
}

}  // namespace bdlm
