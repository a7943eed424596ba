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

template <class A>
CU_INLINE void store_loss(const Statistics& s, A& loss) {
  if (threadIdx.x == 0) loss = static_cast<A>(std::log(s.sum) - (s.target - s.largest));
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
  store_loss(s, loss.data[i * loss.stride]);
  row_gradient(row, s, weight.data[i * weight.stride], dlogits.data + i * dlogits.stride);
}

template <class A, int N>
__global__ void __launch_bounds__(row_threads<A>, 1)
    statistics_only(View<const A> logits, const std::int32_t* targets, std::int64_t first,
                    std::int64_t excluded, View<double> statistics) {
  const std::int64_t i = blockIdx.x;
  const LogitRow<A, N> row{logits.data + i * logits.stride,
                           static_cast<int>(logits.cols),
                           static_cast<int>(targets[i] - first),
                           static_cast<int>(excluded - first),
                           nullptr,
                           0};
  const Statistics s = row_statistics(row);
  double* out = statistics.data + i * statistics.stride;
  if (threadIdx.x != 0) return;
  out[0] = s.largest;
  out[1] = s.sum;
  out[2] = s.target;
}

template <class T, int N>
__global__ void __launch_bounds__(row_threads<sum_t<T>>, 1)
    gradient_only(View<const sum_t<T>> logits, const std::int32_t* targets,
                  View<const sum_t<T>> weight, std::int64_t first, std::int64_t excluded,
                  View<const double> statistics, View<sum_t<T>> loss, View<T> dlogits) {
  using A = sum_t<T>;
  const std::int64_t i = blockIdx.x;
  const LogitRow<A, N> row{logits.data + i * logits.stride,
                           static_cast<int>(logits.cols),
                           static_cast<int>(targets[i] - first),
                           static_cast<int>(excluded - first),
                           nullptr,
                           0};
  const double* in = statistics.data + i * statistics.stride;
  const Statistics s{in[0], in[1], in[2]};
  store_loss(s, loss.data[i * loss.stride]);
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
void cross_entropy_statistics(Stream stream, View<const A> logits, const std::int32_t* targets,
                              std::int64_t first, std::int64_t excluded, View<double> statistics) {
  if (logits.rows == 0) return;
  const auto run = [&]<int N>() {
    launch("cross_entropy_statistics", statistics_only<A, N>,
           row_launch<A, N>(stream, logits.rows, logits.cols), logits, targets, first,
           excluded < 0 ? first - 1 : excluded, statistics);
  };
  constexpr int wide = vector_width<A>();
  fits<wide>(logits) ? run.template operator()<wide>() : run.template operator()<1>();
}

template <class T>
void cross_entropy_gradient(Stream stream, View<const sum_t<T>> logits, const std::int32_t* targets,
                            View<const sum_t<T>> weight, std::int64_t first, std::int64_t excluded,
                            View<const double> statistics, View<sum_t<T>> loss, View<T> dlogits) {
  using A = sum_t<T>;
  if (logits.rows == 0) return;
  const auto run = [&]<int N>() {
    launch("cross_entropy_gradient", gradient_only<T, N>,
           row_launch<A, N>(stream, logits.rows, logits.cols), logits, targets, weight, first,
           excluded < 0 ? first - 1 : excluded, statistics, loss, dlogits);
  };
  constexpr int wide = vector_width<sum_t<T>>();
  if (fits<wide>(logits) && fits<wide>(dlogits)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
}

#define BDLM_CROSS_ENTROPY(T)                                                                  \
  template void cross_entropy<T>(Stream, View<const sum_t<T>>, const std::int32_t*,            \
                                 View<const sum_t<T>>, std::int64_t, View<sum_t<T>>, View<T>); \
  template void cross_entropy_gradient<T>(Stream, View<const sum_t<T>>, const std::int32_t*,   \
                                          View<const sum_t<T>>, std::int64_t, std::int64_t,    \
                                          View<const double>, View<sum_t<T>>, View<T>);
BDLM_CROSS_ENTROPY(double)
BDLM_CROSS_ENTROPY(float)
BDLM_CROSS_ENTROPY(bfloat16)
template void cross_entropy_statistics(Stream, View<const float>, const std::int32_t*, std::int64_t,
                                       std::int64_t, View<double>);
template void cross_entropy_statistics(Stream, View<const double>, const std::int32_t*,
                                       std::int64_t, std::int64_t, View<double>);

}  // namespace bdlm::cuda
