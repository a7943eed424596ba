// SPDX-License-Identifier: Apache-2.0
// Launch functions of interval attention and the table that chooses among them. Three kinds of
// kernel compute the same: `simple` (any type and head size, one thread a channel or so; for parity
// and odd shapes), `mma` (bfloat16 on mma.sync tensor cores, sm_80 and later), `wgmma` (bfloat16 on
// Hopper's warp group instructions with TMA, sm_90a).
#pragma once

#include <cstdint>

#include "kernels/interval.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/view.h"

namespace bdlm::cuda {

enum class AttentionKernel : std::uint8_t { simple, mma, wgmma };

/// Tile shapes of a kernel: schedules are made for them.
struct AttentionTiles {
  std::int32_t rows = 0, keys = 0;
  bool operator==(const AttentionTiles&) const = default;
};

struct AttentionChoice {
  AttentionKernel kernel = AttentionKernel::simple;
  AttentionTiles forward;           // schedule_by_query
  AttentionTiles backward_query;    // schedule_by_query, for dq
  AttentionTiles backward_key;      // schedule_by_key, for dkey and dvalue
};
/// The one table. `compute` is the device's 10 * major + minor (80, 90, ...); `aligned`: every
/// pointer and row stride is a multiple of 16 bytes.
AttentionChoice choose_attention(bool bf16, std::int64_t head_dim, int compute, bool aligned);

inline constexpr int most_sources = 4;
inline constexpr int most_channels = 512;  // of a head

template <class T>
struct AttentionSource {
  View<const T> key, value;           // [keys, kv_heads * head_dim]
  const Interval* visible = nullptr;  // [rows]
  TileList tiles;                     // by query, for the forward pass and dq; by key for dkey
};

struct AttentionSizes {
  std::int32_t heads = 0, kv_heads = 0, head_dim = 0;
  double scale = 0;
};

/// One launch attends all sources. out is T or sum_t<T>: exactly one of the two has data. resume:
/// out_sum and lse hold the result over other keys and are continued.
template <class T>
struct AttentionForward {
  AttentionSizes sizes;
  View<const T> q;
  AttentionSource<T> sources[most_sources];  // device code cannot index std::array
  int source_count = 0;
  View<T> out;
  View<sum_t<T>> out_sum;
  View<sum_t<T>> lse;  // [rows, heads]
  bool resume = false;
};

template <class T>
struct AttentionBackward {
  AttentionSizes sizes;
  View<const T> q;
  AttentionSource<T> by_query, by_key;  // the same source with its two schedules
  View<const T> dout;
  View<const sum_t<T>> lse, delta;    // [rows, heads]
  View<sum_t<T>> dq, dkey, dvalue;    // +=
};

// attention_simple_*.cu: T any of the three. Only by_key needs its schedule.
template <class T>
void attention_forward_simple(Stream stream, const AttentionForward<T>& args);
template <class T>
void attention_backward_simple(Stream stream, const AttentionBackward<T>& args);

// attention_delta.cu: delta[row, head] = sum over the head's channels of out * dout; O: T or its sum
template <class T, class O>
void attention_delta(Stream stream, const AttentionSizes& sizes, View<const O> out,
                     View<const T> dout, View<sum_t<T>> delta);

// attention_mma_forward.cu, attention_mma_backward.cu: head_dim a multiple of 8, at most 256,
// run as 64, 128 or 256 with the missing channels read as zeros. 16-byte aligned rows.
void attention_forward_mma(Stream stream, const AttentionForward<bfloat16>& args);
void attention_backward_mma(Stream stream, const AttentionBackward<bfloat16>& args);

// attention_wgmma_forward.cu, attention_wgmma_backward.cu: head_dim 64 or 128
void attention_forward_wgmma(Stream stream, const AttentionForward<bfloat16>& args);
void attention_backward_wgmma(Stream stream, const AttentionBackward<bfloat16>& args);

}  // namespace bdlm::cuda
