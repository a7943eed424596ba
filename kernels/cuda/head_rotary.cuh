// SPDX-License-Identifier: Apache-2.0
// How a warp works on the heads of one row, for both directions. The rotation joins channels i and
// i + half; the channels behind the rotated ones are joined in the same way, and not turned. So a
// head is pairs of channels; N of them, neighbours, are a lane's.
#pragma once

#include <algorithm>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector_io.cuh"

namespace bdlm::cuda {

inline constexpr unsigned head_warps = 8;  // of a block

struct HeadPairs {
  int head_dim, half;
  int count;  // of the last, the second channel may not exist

  template <class T>
  explicit HeadPairs(const HeadRotaryArgs<T>& args)
      : head_dim(static_cast<int>(args.head_dim)),
        half(static_cast<int>(args.cos.cols)),
        count((head_dim + 1) / 2) {}

  CU_INLINE bool rotated(int pair) const { return pair < half; }
  CU_INLINE int first(int pair) const { return rotated(pair) ? pair : pair + half; }
  CU_INLINE int second(int pair) const { return pair + (rotated(pair) ? half : count); }

  /// Lanes for a head when each takes N pairs: a power of two; 0 if it does not come out even.
  template <int N>
  unsigned lanes_for() const {
    if (half % N != 0 || head_dim % (2 * N) != 0 || count > static_cast<int>(lanes) * N) return 0;
    unsigned width = 1;
    while (static_cast<int>(width) * N < count) width *= 2;
    return width;
  }
};

/// cos and sin of N pairs, times the temperature: the same for all heads of a row.
template <class A, int N>
struct Angles {
  A cos[N], sin[N];
  bool rotated = false;

  template <class T>
  CU_INLINE void read(const HeadRotaryArgs<T>& args, const HeadPairs& pairs, std::int64_t row,
                      int pair) {
    const std::int64_t position = args.positions != nullptr ? args.positions[row] : 0;
    const A temperature = args.temperature != nullptr ? args.temperature[position] : A(1);
    rotated = pairs.rotated(pair);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      cos[k] = temperature;
      sin[k] = 0;
    }
    if (!rotated) return;
    const auto c = load_vector<N>(args.cos.data + position * args.cos.stride + pair);
    const auto s = load_vector<N>(args.sin.data + position * args.sin.stride + pair);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      cos[k] *= c.at[k];
      sin[k] = s.at[k] * temperature;
    }
  }

  CU_INLINE void turn(int k, A& a, A& b) const { turn(a, b, cos[k], sin[k]); }
  CU_INLINE void turn_back(int k, A& a, A& b) const { turn(a, b, cos[k], -sin[k]); }

 private:
  CU_INLINE void turn(A& a, A& b, A c, A s) const {
    const A x = a, y = b;
    // Not x c - y 0 where nothing turns: y may be infinite.
    a = rotated ? x * c - y * s : x * c;
    b = rotated ? y * c + x * s : y * c;
  }
};

template <int N, class T>
bool table_fits(const HeadRotaryArgs<T>& args) {
  const View<const T> weight{args.norm_weight, 1, args.head_dim, args.head_dim};
  return fits<N>(args.cos) && fits<N>(args.sin) && fits<N>(weight);
}

}  // namespace bdlm::cuda
