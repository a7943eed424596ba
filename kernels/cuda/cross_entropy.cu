// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over the vocabulary with its gradient. A block has a row, of 100 KB to 1 MB: a
// first pass takes the largest logit and the sum of exponentials together, a second writes the
// gradient. What was read is kept in shared memory as far as it goes; the second pass takes the
// rest backwards, so that it finds in the L2 cache what the first has read last.
#include <algorithm>

#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {
namespace {

/// What a block of this device can have beside its static shared memory.
std::size_t cache_bytes() {
  int device = 0, most = 0;
  check_cuda(cudaGetDevice(&device), "cross_entropy");
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cross_entropy");
  return static_cast<std::size_t>(most) - 2048;
}

constexpr unsigned merge_threads = 128;

template <class A>
CU_INLINE A loss_of(const Statistics& s) {
  return static_cast<A>(std::log(s.sum) - (s.target - s.largest));
}

template <class T, int N>
__global__ void __launch_bounds__(row_threads<sum_t<T>>, 1)
    loss_and_gradient(View<const sum_t<T>> logits, const std::int32_t* targets,
                      View<const sum_t<T>> weight, int excluded, int cached, View<sum_t<T>> loss,
                      View<T> dlogits) {
  using A = sum_t<T>;
  CU_DYNAMIC_SHARED(A, cache);
  const std::int64_t i = blockIdx.x;
  const LogitRow<A, N> row{logits.data + i * logits.stride,
                           static_cast<int>(logits.cols),
                           targets[i],
                           excluded,
                           cache,
                           cached};
  const Statistics s = row_statistics(row);
  if (threadIdx.x == 0) loss.data[i * loss.stride] = loss_of<A>(s);
  row_gradient(row, s, weight.data[i * weight.stride], dlogits.data + i * dlogits.stride);
}

/// The row that begins at the id `first`.
template <int N, class A>
CU_INLINE LogitRow<A, N> part_of_row(View<const A> logits, std::int64_t i, std::int64_t first,
                                     const std::int32_t* targets, std::int64_t excluded) {
  return {logits.data + i * logits.stride,
          static_cast<int>(logits.cols),
          static_cast<int>(targets[i] - first),
          excluded < 0 ? -1 : static_cast<int>(excluded - first),
          nullptr,
          0};
}

template <class A, int N>
__global__ void __launch_bounds__(row_threads<A>, 1)
    statistics_only(View<const A> logits, std::int64_t first, const std::int32_t* targets,
                    std::int64_t excluded, View<A> statistics) {
  const std::int64_t i = blockIdx.x;
  const LogitRow<A, N> row = part_of_row<N>(logits, i, first, targets, excluded);
  const Statistics s = row_statistics(row);
  if (threadIdx.x != 0) return;
  A* out = statistics.data + i * statistics.stride;
  out[0] = static_cast<A>(s.largest);
  out[1] = static_cast<A>(s.sum);
  out[2] = row.target >= 0 && row.target < row.cols ? static_cast<A>(s.target) : A(0);
}

/// A thread has a row.
template <class A>
__global__ void __launch_bounds__(merge_threads, 1)
    merge(View<const A> parts, View<A> statistics, View<A> loss) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * merge_threads + threadIdx.x;
  if (i >= loss.rows) return;
  const auto part = [&](std::int64_t at) { return parts.data + at * parts.stride; };
  A largest = -infinity<A>, target = 0;
  for (std::int64_t at = i; at < parts.rows; at += loss.rows) {
    largest = Largest()(largest, part(at)[0]);
    target += part(at)[2];
  }
  double sum = 0;
  for (std::int64_t at = i; at < parts.rows; at += loss.rows) {
    const double lower = static_cast<double>(part(at)[0]) - static_cast<double>(largest);
    sum += static_cast<double>(part(at)[1]) * std::exp(lower);
  }
  A* out = statistics.data + i * statistics.stride;
  out[0] = largest;
  out[1] = static_cast<A>(sum);
  out[2] = target;
  loss.data[i * loss.stride] =
      loss_of<A>({static_cast<double>(largest), sum, static_cast<double>(target)});
}

template <class T, int N>
__global__ void __launch_bounds__(row_threads<sum_t<T>>, 1)
    gradient_only(View<const sum_t<T>> logits, std::int64_t first, const std::int32_t* targets,
                  View<const sum_t<T>> weight, std::int64_t excluded,
                  View<const sum_t<T>> statistics, View<T> dlogits) {
  using A = sum_t<T>;
  const std::int64_t i = blockIdx.x;
  const LogitRow<A, N> row = part_of_row<N>(logits, i, first, targets, excluded);
  const A* in = statistics.data + i * statistics.stride;
  const Statistics s{static_cast<double>(in[0]), static_cast<double>(in[1]),
                     static_cast<double>(in[2])};
  row_gradient(row, s, weight.data[i * weight.stride], dlogits.data + i * dlogits.stride);
}

template <class A, int N>
Launch row_launch(Stream stream, std::int64_t rows, std::int64_t cols) {
  unsigned threads = lanes;
  while (threads < row_threads<A> && std::int64_t{threads} * N * row_batch<A> < cols) threads *= 2;
  return {dim3(static_cast<unsigned>(rows)), dim3(threads), 0, stream};
}

}  // namespace

template <class T>
void cross_entropy(Stream stream, View<const sum_t<T>> logits, const std::int32_t* targets,
                   View<const sum_t<T>> weight, std::int64_t excluded, View<sum_t<T>> loss,
                   View<T> dlogits) {
  using A = sum_t<T>;
  if (logits.rows == 0) return;
  const auto run = [&]<int N>() {
    const auto most = static_cast<std::int64_t>(cache_bytes() / sizeof(A) / N * N);
    const std::int64_t cached = std::min(logits.cols, most);
    Launch l = row_launch<A, N>(stream, logits.rows, logits.cols);
    l.shared = static_cast<std::size_t>(cached) * sizeof(A);
    launch("cross_entropy", loss_and_gradient<T, N>, l, logits, targets, weight,
           static_cast<int>(excluded), static_cast<int>(cached), loss, dlogits);
  };
  constexpr int wide = vector_width<sum_t<T>>();
  if (fits<wide>(logits) && fits<wide>(dlogits)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
}

template <class A>
void cross_entropy_statistics(Stream stream, View<const A> logits, std::int64_t first,
                              const std::int32_t* targets, std::int64_t excluded,
                              View<A> statistics) {
  const auto run = [&]<int N>() {
    launch("cross_entropy_statistics", statistics_only<A, N>,
           row_launch<A, N>(stream, logits.rows, logits.cols), logits, first, targets, excluded,
           statistics);
  };
  constexpr int wide = vector_width<A>();
  fits<wide>(logits) ? run.template operator()<wide>() : run.template operator()<1>();
}

template <class A>
void merge_cross_entropy(Stream stream, View<const A> parts, View<A> statistics, View<A> loss) {
  const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(loss.rows, merge_threads));
  launch("merge_cross_entropy", merge<A>, {dim3(blocks), dim3(merge_threads), 0, stream}, parts,
         statistics, loss);
}

template <class T>
void cross_entropy_gradient(Stream stream, View<const sum_t<T>> logits, std::int64_t first,
                            const std::int32_t* targets, View<const sum_t<T>> weight,
                            std::int64_t excluded, View<const sum_t<T>> statistics,
                            View<T> dlogits) {
  using A = sum_t<T>;
  const auto run = [&]<int N>() {
    launch("cross_entropy_gradient", gradient_only<T, N>,
           row_launch<A, N>(stream, logits.rows, logits.cols), logits, first, targets, weight,
           excluded, statistics, dlogits);
  };
  constexpr int wide = vector_width<sum_t<T>>();
  if (fits<wide>(logits) && fits<wide>(dlogits)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
}

#define BDLM_CROSS_ENTROPY(T)                                                                     \
  template void cross_entropy<T>(Stream, View<const sum_t<T>>, const std::int32_t*,               \
                                 View<const sum_t<T>>, std::int64_t, View<sum_t<T>>, View<T>);    \
  template void cross_entropy_gradient<T>(Stream, View<const sum_t<T>>, std::int64_t,             \
                                          const std::int32_t*, View<const sum_t<T>>,              \
                                          std::int64_t, View<const sum_t<T>>, View<T>);
BDLM_CROSS_ENTROPY(double)
BDLM_CROSS_ENTROPY(float)
BDLM_CROSS_ENTROPY(bfloat16)
#define BDLM_CROSS_ENTROPY_PARTS(A)                                                               \
  template void cross_entropy_statistics(Stream, View<const A>, std::int64_t,                     \
                                         const std::int32_t*, std::int64_t, View<A>);             \
  template void merge_cross_entropy(Stream, View<const A>, View<A>, View<A>);
BDLM_CROSS_ENTROPY_PARTS(double)
BDLM_CROSS_ENTROPY_PARTS(float)

}  // namespace bdlm::cuda
