// SPDX-License-Identifier: Apache-2.0
// Gradient of an expert's gated unit times the row's weight, whose gradient is a sum over the row.
#include <cmath>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector_io.cuh"

namespace bdlm::cuda {
namespace {

constexpr unsigned block_threads = 256;

/// dgate_up may be gate_up and y may be dy: a thread writes what only it has read. A row of the
/// block is a row of the matrix.
template <class T, int N>
__global__ void __launch_bounds__(block_threads)
    backward(View<const T> gate_up, View<const sum_t<T>> weight, View<const T> dy,
             View<T> dgate_up, View<sum_t<T>> dweight, View<T> y) {
  using A = sum_t<T>;
  __shared__ A sums[lanes];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool live = row < dy.rows;  // the others take part in the sum
  const std::int64_t half = dy.cols, cols = live ? half : 0;
  const T* gate = gate_up.data + row * gate_up.stride;
  const T* grad = dy.data + row * dy.stride;
  T* dgate = dgate_up.data + row * dgate_up.stride;
  T* out = y.data + row * y.stride;
  const A w = live ? weight.data[row * weight.stride] : A(0);
  A sum = 0;
#pragma unroll 2
  for (std::int64_t col = std::int64_t{threadIdx.x} * N; col < cols; col += blockDim.x * N) {
    const Vector<T, N> gates = load_vector<N>(gate + col), ups = load_vector<N>(gate + half + col);
    const Vector<T, N> grads = load_vector<N>(grad + col);
    Vector<T, N> to_gate, to_up, unit;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A g = load(gates.at[k]), u = load(ups.at[k]), d = load(grads.at[k]);
      const A sigmoid = A(1) / (A(1) + std::exp(-g));
      const A plain = g * sigmoid * u;
      sum += d * plain;
      store(to_gate.at[k], w * d * u * sigmoid * (A(1) + g * (A(1) - sigmoid)));
      store(to_up.at[k], w * d * g * sigmoid);
      store(unit.at[k], plain * w);
    }
    store_vector<N>(dgate + col, to_gate);
    store_vector<N>(dgate + half + col, to_up);
    store_vector<N>(out + col, unit);
  }
  sum = row_sum(sum, sums);
  if (live && threadIdx.x == 0) dweight.data[row * dweight.stride] = sum;
}

/// Two matrices side by side: both must fit.
template <int N, class T>
bool halves_fit(const View<T>& x) {
  return fits<N>(View<T>{x.data, x.rows, x.cols / 2, x.stride});
}

}  // namespace

template <class T>
void weighted_swiglu_backward(Stream stream, View<const T> gate_up, View<const sum_t<T>> weight,
                              View<const T> dy, View<T> dgate_up, View<sum_t<T>> dweight,
                              View<T> y) {
  const auto run = [&]<int N>() {
    unsigned threads = lanes;
    while (threads < block_threads && std::int64_t{threads} * N < dy.cols) threads *= 2;
    const dim3 block(threads, block_threads / threads);
    const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(dy.rows, block.y));
    launch("weighted_swiglu_backward", backward<T, N>, {dim3(blocks), block, 0, stream}, gate_up,
           weight, dy, dgate_up, dweight, y);
  };
  constexpr int wide = vector_width<T>();
  if (halves_fit<wide>(gate_up) && halves_fit<wide>(dgate_up) && fits<wide>(dy) &&
      fits<wide>(y)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
}

#define BDLM_WEIGHTED_SWIGLU(T)                                                                \
  template void weighted_swiglu_backward<T>(Stream, View<const T>, View<const sum_t<T>>,       \
                                            View<const T>, View<T>, View<sum_t<T>>, View<T>);
BDLM_WEIGHTED_SWIGLU(double)
BDLM_WEIGHTED_SWIGLU(float)
BDLM_WEIGHTED_SWIGLU(bfloat16)

}  // namespace bdlm::cuda
