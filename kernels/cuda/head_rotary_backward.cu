// SPDX-License-Identifier: Apache-2.0
// Gradients of head_rotary: the transposed rotation, then the norm's. Warps take rows by turns, so
// that the sums for dweight stay with the lane that has those channels.
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/head_rotary.cuh"
#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {
namespace {

/// sums [head_warps, head_dim] to one row of partial, in the order of the warps.
template <class A>
CU_INLINE void store_partial(const A* sums, int head_dim, View<A> partial) {
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y * lanes + threadIdx.x); i < head_dim;
       i += head_warps * lanes) {
    A total = sums[i];
    for (unsigned w = 1; w < head_warps; ++w) total += sums[w * head_dim + i];
    partial.data[blockIdx.x * partial.stride + i] = total;
  }
}

/// See the forward's kernel. dx may be dy.
template <class T, class D, int N>
__global__ void __launch_bounds__(head_warps* lanes, 2)
    heads_in_registers(HeadRotaryArgs<T> args, HeadPairs pairs, unsigned width, View<const T> x,
                       View<const sum_t<T>> rstd, View<const D> dy, View<T> dx,
                       View<sum_t<T>> partial) {
  using A = sum_t<T>;
  CU_DYNAMIC_SHARED(A, sums);
  const int group = static_cast<int>(threadIdx.x / width), groups = static_cast<int>(lanes / width);
  const int pair = static_cast<int>(threadIdx.x % width) * N;
  const int heads = pair < pairs.count ? static_cast<int>(args.heads) : 0;  // of this lane
  const bool norm = args.norm_weight != nullptr;
  const int first = pairs.first(pair), second = pairs.second(pair);

  Vector<T, N> weight_a, weight_b;
  if (norm && heads > 0) {
    weight_a = load_vector<N>(args.norm_weight + first);
    weight_b = load_vector<N>(args.norm_weight + second);
  }
  A dweight_a[N] = {}, dweight_b[N] = {};
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * head_warps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * head_warps + threadIdx.y;
       row < dy.rows; row += step) {
    Angles<A, N> angles;
    if (heads > 0) angles.read(args, pairs, row, pair);
    for (int base = 0; base < args.heads; base += groups) {
      const int head = base + group, at = head * pairs.head_dim;
      const bool live = head < heads;
      Vector<T, N> a, b;
      A da[N] = {}, db[N] = {}, scale = 0, sum = 0;
      if (live) {
        const auto grad_a = load_vector<N>(dy.data + row * dy.stride + at + first);
        const auto grad_b = load_vector<N>(dy.data + row * dy.stride + at + second);
        if (norm) {
          a = load_vector<N>(x.data + row * x.stride + at + first);
          b = load_vector<N>(x.data + row * x.stride + at + second);
          scale = rstd.data[row * rstd.stride + head];
        }
#pragma unroll
        for (int k = 0; k < N; ++k) {
          da[k] = load(grad_a.at[k]);
          db[k] = load(grad_b.at[k]);
          angles.turn_back(k, da[k], db[k]);
        }
      }
      if (norm) {
        if (live) {
#pragma unroll
          for (int k = 0; k < N; ++k) {
            sum += load(a.at[k]) * load(weight_a.at[k]) * da[k] +
                   load(b.at[k]) * load(weight_b.at[k]) * db[k];
          }
        }
        const A mean = combine_lanes(sum, width, Sum()) * scale / static_cast<A>(pairs.head_dim);
        if (live) {
#pragma unroll
          for (int k = 0; k < N; ++k) {
            const A normed_a = load(a.at[k]) * scale, normed_b = load(b.at[k]) * scale;
            dweight_a[k] += normed_a * da[k];
            dweight_b[k] += normed_b * db[k];
            da[k] = scale * (load(weight_a.at[k]) * da[k] - normed_a * mean);
            db[k] = scale * (load(weight_b.at[k]) * db[k] - normed_b * mean);
          }
        }
      }
      if (!live) continue;
      Vector<T, N> to_a, to_b;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        store(to_a.at[k], da[k]);
        store(to_b.at[k], db[k]);
      }
      store_vector<N>(dx.data + row * dx.stride + at + first, to_a);
      store_vector<N>(dx.data + row * dx.stride + at + second, to_b);
    }
  }
  if (!norm) return;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    for (unsigned offset = width; offset < lanes; offset *= 2) {
      dweight_a[k] += __shfl_xor_sync(all_lanes, dweight_a[k], offset);
      dweight_b[k] += __shfl_xor_sync(all_lanes, dweight_b[k], offset);
    }
    if (group == 0 && pair < pairs.count) {
      sums[threadIdx.y * pairs.head_dim + first + k] = dweight_a[k];
      sums[threadIdx.y * pairs.head_dim + second + k] = dweight_b[k];
    }
  }
  store_partial(sums, pairs.head_dim, partial);
}

/// Any width and alignment: all lanes on one head, which is read twice.
template <class T, class D>
__global__ void __launch_bounds__(head_warps* lanes, 2)
    heads_read_twice(HeadRotaryArgs<T> args, HeadPairs pairs, View<const T> x,
                     View<const sum_t<T>> rstd, View<const D> dy, View<T> dx,
                     View<sum_t<T>> partial) {
  using A = sum_t<T>;
  CU_DYNAMIC_SHARED(A, sums);
  const int lane = static_cast<int>(threadIdx.x);
  const bool norm = args.norm_weight != nullptr;
  A* dweight = sums + threadIdx.y * pairs.head_dim;  // a channel belongs to one lane
  if (norm) {
    for (int pair = lane; pair < pairs.count; pair += lanes) {
      dweight[pairs.first(pair)] = 0;
      if (pairs.second(pair) < pairs.head_dim) dweight[pairs.second(pair)] = 0;
    }
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * head_warps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * head_warps + threadIdx.y;
       row < dy.rows; row += step) {
    for (std::int64_t head = 0; head < args.heads; ++head) {
      const D* grad = dy.data + row * dy.stride + head * pairs.head_dim;
      const T* in = norm ? x.data + row * x.stride + head * pairs.head_dim : nullptr;
      T* out = dx.data + row * dx.stride + head * pairs.head_dim;
      const A scale = norm ? rstd.data[row * rstd.stride + head] : A(1);
      // Twice through the pairs: for the mean, then for the gradients.
      A mean = 0;
      for (int pass = norm ? 0 : 1; pass < 2; ++pass) {
        const bool last = pass == 1;
        A sum = 0;
        for (int pair = lane; pair < pairs.count; pair += lanes) {
          const int first = pairs.first(pair), second = pairs.second(pair);
          const bool both = second < pairs.head_dim;
          Angles<A, 1> angles;
          angles.read(args, pairs, row, pair);
          A a = load(grad[first]), b = both ? load(grad[second]) : A(0);
          angles.turn_back(0, a, b);
          const A normed_a = norm ? load(in[first]) * scale : A(0);
          const A normed_b = norm && both ? load(in[second]) * scale : A(0);
          const A weight_a = norm ? load(args.norm_weight[first]) : A(1);
          const A weight_b = norm && both ? load(args.norm_weight[second]) : A(1);
          if (!last) {
            sum += normed_a * weight_a * a + normed_b * weight_b * b;
            continue;
          }
          if (norm) {
            dweight[first] += normed_a * a;
            if (both) dweight[second] += normed_b * b;
          }
          store(out[first], scale * (weight_a * a - normed_a * mean));
          if (both) store(out[second], scale * (weight_b * b - normed_b * mean));
        }
        if (!last) mean = warp_sum(sum) / static_cast<A>(pairs.head_dim);
      }
    }
  }
  if (norm) store_partial(sums, pairs.head_dim, partial);
}

}  // namespace

template <class T, class D>
void head_rotary_backward(Stream stream, const HeadRotaryArgs<T>& args, View<const T> x,
                          View<const sum_t<T>> rstd, View<const D> dy, View<T> dx,
                          View<sum_t<T>> partial, View<sum_t<T>> dweight) {
  using A = sum_t<T>;
  if (dy.rows == 0 || args.heads == 0) return;
  const HeadPairs pairs(args);
  const bool norm = args.norm_weight != nullptr;
  std::int64_t blocks = ceil_div<std::int64_t>(dy.rows, head_warps);
  if (norm) blocks = std::min(blocks, partial.rows);
  Launch l{dim3(static_cast<unsigned>(blocks)), dim3(lanes, head_warps), 0, stream};
  if (norm) l.shared = head_warps * static_cast<std::size_t>(pairs.head_dim) * sizeof(A);
  constexpr int wide = vector_width<T>();
  const unsigned width = pairs.template lanes_for<wide>();
  if (width != 0 && (!norm || fits<wide>(x)) && fits<wide>(dy) && fits<wide>(dx) &&
      table_fits<wide>(args)) {
    launch("head_rotary_backward", heads_in_registers<T, D, wide>, l, args, pairs, width, x, rstd,
           dy, dx, partial);
  } else {
    launch("head_rotary_backward", heads_read_twice<T, D>, l, args, pairs, x, rstd, dy, dx,
           partial);
  }
  if (norm) {
    add_partials<A>(stream, {partial.data, blocks, pairs.head_dim, partial.stride}, dweight);
  }
}

#define BDLM_HEAD_ROTARY_BACKWARD(T, D)                                                     \
  template void head_rotary_backward<T, D>(Stream, const HeadRotaryArgs<T>&, View<const T>, \
                                           View<const sum_t<T>>, View<const D>, View<T>,    \
                                           View<sum_t<T>>, View<sum_t<T>>);
BDLM_HEAD_ROTARY_BACKWARD(double, double)
BDLM_HEAD_ROTARY_BACKWARD(float, float)
BDLM_HEAD_ROTARY_BACKWARD(bfloat16, bfloat16)
BDLM_HEAD_ROTARY_BACKWARD(bfloat16, float)

}  // namespace bdlm::cuda
