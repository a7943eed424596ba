// SPDX-License-Identifier: Apache-2.0
// QK-norm, rotary embedding (Su et al., arXiv 2104.09864) and query temperature in one pass:
// a warp a row, several heads side by side in it.
#include <cmath>

#include "kernels/cuda/head_rotary.cuh"
#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {
namespace {

/// `width` lanes a head, each with N pairs; the next head is loaded before the last one is stored.
/// y may be x.
template <class T, int N>
__global__ void __launch_bounds__(head_warps* lanes)
    heads_in_registers(HeadRotaryArgs<T> args, HeadPairs pairs, unsigned width, View<const T> x,
                       View<T> y, View<sum_t<T>> rstd) {
  using A = sum_t<T>;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * head_warps + threadIdx.y;
  if (row >= x.rows) return;
  const int group = static_cast<int>(threadIdx.x / width), groups = static_cast<int>(lanes / width);
  const int pair = static_cast<int>(threadIdx.x % width) * N;
  const int heads = pair < pairs.count ? static_cast<int>(args.heads) : 0;  // of this lane
  const bool norm = args.norm_weight != nullptr;
  const int first = pairs.first(pair), second = pairs.second(pair);

  Angles<A, N> angles;
  Vector<T, N> weight_a, weight_b, next_a, next_b;
  const T* in = x.data + row * x.stride;
  T* out = y.data + row * y.stride;
  if (group < heads) {
    next_a = load_vector<N>(in + group * pairs.head_dim + first);
    next_b = load_vector<N>(in + group * pairs.head_dim + second);
    angles.read(args, pairs, row, pair);
    if (norm) {
      weight_a = load_vector<N>(args.norm_weight + first);
      weight_b = load_vector<N>(args.norm_weight + second);
    }
  }
  for (int base = 0; base < args.heads; base += groups) {
    const int head = base + group;
    const Vector<T, N> a = next_a, b = next_b;
    if (head + groups < heads) {
      next_a = load_vector<N>(in + (head + groups) * pairs.head_dim + first);
      next_b = load_vector<N>(in + (head + groups) * pairs.head_dim + second);
    }
    A scale = 1;
    if (norm) {
      A sum = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sum += load(a.at[k]) * load(a.at[k]) + load(b.at[k]) * load(b.at[k]);
      }
      sum = combine_lanes(head < heads ? sum : A(0), width, Sum());
      scale =
          A(1) / std::sqrt(sum / static_cast<A>(pairs.head_dim) + static_cast<A>(args.norm_eps));
      if (head < heads && pair == 0) rstd.data[row * rstd.stride + head] = scale;
    }
    if (head >= heads) continue;
    Vector<T, N> to_a, to_b;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      A u = load(a.at[k]), v = load(b.at[k]);
      if (norm) {
        u *= scale * load(weight_a.at[k]);
        v *= scale * load(weight_b.at[k]);
      }
      angles.turn(k, u, v);
      store(to_a.at[k], u);
      store(to_b.at[k], v);
    }
    store_vector<N>(out + head * pairs.head_dim + first, to_a);
    store_vector<N>(out + head * pairs.head_dim + second, to_b);
  }
}

/// Any width and alignment: all lanes on one head, which is read twice.
template <class T>
__global__ void __launch_bounds__(head_warps* lanes)
    heads_read_twice(HeadRotaryArgs<T> args, HeadPairs pairs, View<const T> x, View<T> y,
                     View<sum_t<T>> rstd) {
  using A = sum_t<T>;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * head_warps + threadIdx.y;
  if (row >= x.rows) return;
  const bool norm = args.norm_weight != nullptr;
  for (std::int64_t head = 0; head < args.heads; ++head) {
    const T* in = x.data + row * x.stride + head * pairs.head_dim;
    T* out = y.data + row * y.stride + head * pairs.head_dim;
    A scale = 1;
    if (norm) {
      A sum = 0;
      for (int i = static_cast<int>(threadIdx.x); i < pairs.head_dim; i += lanes) {
        sum += load(in[i]) * load(in[i]);
      }
      scale = A(1) / std::sqrt(warp_sum(sum) / static_cast<A>(pairs.head_dim) +
                               static_cast<A>(args.norm_eps));
      if (threadIdx.x == 0) rstd.data[row * rstd.stride + head] = scale;
      __syncwarp();  // y may be x: all have read before one writes
    }
    for (int pair = static_cast<int>(threadIdx.x); pair < pairs.count; pair += lanes) {
      const int first = pairs.first(pair), second = pairs.second(pair);
      const bool both = second < pairs.head_dim;
      Angles<A, 1> angles;
      angles.read(args, pairs, row, pair);
      A a = load(in[first]), b = both ? load(in[second]) : A(0);
      if (norm) {
        a *= scale * load(args.norm_weight[first]);
        if (both) b *= scale * load(args.norm_weight[second]);
      }
      angles.turn(0, a, b);
      store(out[first], a);
      if (both) store(out[second], b);
    }
  }
}

}  // namespace

template <class T>
void head_rotary_forward(Stream stream, const HeadRotaryArgs<T>& args, View<const T> x, View<T> y,
                         View<sum_t<T>> rstd) {
  if (x.rows == 0 || args.heads == 0) return;
  const HeadPairs pairs(args);
  const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(x.rows, head_warps));
  const Launch l{dim3(blocks), dim3(lanes, head_warps), 0, stream};
  constexpr int wide = vector_width<T>();
  const unsigned width = pairs.template lanes_for<wide>();
  if (width != 0 && fits<wide>(x) && fits<wide>(y) && table_fits<wide>(args)) {
    launch("head_rotary_forward", heads_in_registers<T, wide>, l, args, pairs, width, x, y, rstd);
  } else {
    launch("head_rotary_forward", heads_read_twice<T>, l, args, pairs, x, y, rstd);
  }
}

#define BDLM_HEAD_ROTARY(T)                                                                      \
  template void head_rotary_forward<T>(Stream, const HeadRotaryArgs<T>&, View<const T>, View<T>, \
                                       View<sum_t<T>>);
BDLM_HEAD_ROTARY(double)
BDLM_HEAD_ROTARY(float)
BDLM_HEAD_ROTARY(bfloat16)

}  // namespace bdlm::cuda
