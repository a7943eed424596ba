// SPDX-License-Identifier: Apache-2.0
// Interval attention backward on Hopper: the gradients of keys and values. A block takes 128 keys
// of one key head, and goes through the query heads of its group and the tiles of 64 query rows
// that see these keys. Scores are computed transposed, keys by queries: probabilities and score
// gradients are then left operands in registers, and each warp group sums its own 64 keys.
#include "kernels/cuda/attention_wgmma_backward.cuh"
#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {
namespace hopper {

template <int Dim>
inline constexpr int query_rows = wgmma_tiles(Dim).backward_key.rows;
static_assert(wgmma_tiles(64).backward_key.keys == backward_keys);
static_assert(wgmma_tiles(128).backward_key.keys == backward_keys);
static_assert(backward_keys == BackwardRoles<64>::rows);

template <int Dim>
struct KeyShared {
  static constexpr unsigned stages = 4;
  using Keys = Tile<backward_keys, Dim>;
  static constexpr int rows = query_rows<Dim>;
  using Queries = Tile<rows, Dim>;
  struct Stage {
    unsigned char q[Queries::bytes], dout[Queries::bytes];
  };
  struct Rows {  // of a stage
    float base[rows], delta[rows];
    std::uint32_t seen[rows];  // keys [lo, hi) of the tile as lo + (hi << 16)
  };
  static constexpr std::size_t bytes = 2 * Keys::bytes + stages * (sizeof(Stage) + sizeof(Rows)) +
                                       Ring<stages>::bytes + Ring<1>::bytes;

  unsigned char *key, *value;
  Stage* stage;
  Rows* row;
  Ring<stages> queries;
  Ring<1> keys;

  CU_INLINE explicit KeyShared(unsigned char* memory)
      : key(memory),
        value(key + Keys::bytes),
        stage(reinterpret_cast<Stage*>(value + Keys::bytes)),
        row(reinterpret_cast<Rows*>(stage + stages)) {
    queries.full = reinterpret_cast<std::uint64_t*>(row + stages);
    keys.full = queries.full + 2 * stages;
  }
};

/// The first thread loads tiles, the last threads what belongs to their rows.
template <int Dim>
CU_INLINE void load_by_key(const BackwardArgs& args, const KeyShared<Dim>& shared, int tile,
                           int kv_head) {
  using Shared = KeyShared<Dim>;
  const int line = static_cast<int>(threadIdx.x) - (128 - Shared::rows);
  if (threadIdx.x > 0 && line < 0) return;
  unsigned i = 0;
  for (int head = kv_head * args.group; head < (kv_head + 1) * args.group; ++head) {
    for (TileWalk walk(&args.tiles, 1, tile); walk.next(); ++i) {
      const int row0 = walk.tile * Shared::rows;
      shared.queries.wait_empty(i);
      if (line >= 0) {
        typename Shared::Rows& rows = shared.row[shared.queries.stage(i)];
        const RowSums sums = row_sums(args, row0 + line, head);
        rows.base[line] = sums.base;
        rows.delta[line] = sums.delta;
        const Interval seen = interval_of(args.visible, row0 + line, args.rows);
        const int lo = min(max(seen.lo - tile * backward_keys, 0), backward_keys);
        const int hi = min(max(seen.hi - tile * backward_keys, 0), backward_keys);
        rows.seen[line] = static_cast<std::uint32_t>(lo | hi << 16);
        shared.queries.arrive(i);
        continue;
      }
      if (i == 0) {
        std::uint64_t* const arrived = shared.keys.expect(0, 2 * Shared::Keys::bytes);
        Shared::Keys::load(shared.key, args.key, arrived, kv_head, tile * backward_keys);
        Shared::Keys::load(shared.value, args.value, arrived, kv_head, tile * backward_keys);
      }
      typename Shared::Stage& stage = shared.stage[shared.queries.stage(i)];
      std::uint64_t* const arrived = shared.queries.expect(i, 2 * Shared::Queries::bytes);
      Shared::Queries::load(stage.q, args.q, arrived, head, row0);
      Shared::Queries::load(stage.dout, args.dout, arrived, head, row0);
    }
  }
}

/// Transposed scores [64 keys, Rows] of keys that their query row does not see become
/// -infinity. key, within the tile, and column: of element 0.
template <int Rows>
CU_INLINE void mask_transposed(float (&s)[Rows / 2], const std::uint32_t* seen, int key,
                               int column) {
#pragma unroll
  for (int i = 0; i < Rows / 8; ++i) {
    const uint2 pair = *reinterpret_cast<const uint2*>(seen + 8 * i + column);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const std::uint32_t keys = j == 0 ? pair.x : pair.y;
      const int lo = static_cast<int>(keys & 0xffff), hi = static_cast<int>(keys >> 16);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (key + 8 * h < lo || key + 8 * h >= hi) s[4 * i + 2 * h + j] = -infinity();
      }
    }
  }
}

/// Values of the two query rows that elements 4 i and 4 i + 1 belong to.
CU_INLINE float2 row_pair(const float* values, int i, int column) {
  return *reinterpret_cast<const float2*>(values + 8 * i + column);
}

template <int Dim>
CU_INLINE void compute_by_key(const BackwardArgs& args, const KeyShared<Dim>& shared, int tile,
                              int kv_head) {
  constexpr int Rows = query_rows<Dim>;
  const int consumer = static_cast<int>(threadIdx.x >> 7) - 1;
  const Fragment at(threadIdx.x & 127);
  const int key0 = consumer * 64 + at.first;  // in the tile
  float dkey[Dim / 2], dvalue[Dim / 2];
#pragma unroll
  for (int i = 0; i < Dim / 2; ++i) dkey[i] = dvalue[i] = 0;

  unsigned i = 0;
  for (int g = 0; g < args.group; ++g) {
    for (TileWalk walk(&args.tiles, 1, tile); walk.next(); ++i) {
      const typename KeyShared<Dim>::Stage& stage = shared.stage[shared.queries.stage(i)];
      const typename KeyShared<Dim>::Rows& rows = shared.row[shared.queries.stage(i)];
      float s[Rows / 2], dp[Rows / 2];
      std::uint32_t p[Rows / 16][4], ds[Rows / 16][4];
      if (i == 0) shared.keys.wait_full(0);
      shared.queries.wait_full(i);
      ptx::wgmma_fence();
      multiply_transposed<backward_keys, Rows, Dim>(s, shared.key, consumer * 64, stage.q);
      ptx::wgmma_commit();
      multiply_transposed<backward_keys, Rows, Dim>(dp, shared.value, consumer * 64, stage.dout);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(s);
      if (walk.masked) mask_transposed<Rows>(s, rows.seen, key0, at.column);
#pragma unroll
      for (int n = 0; n < Rows / 8; ++n) {
        const float2 base = row_pair(rows.base, n, at.column);
#pragma unroll
        for (int e = 4 * n; e < 4 * n + 4; ++e) {
          s[e] = ptx::ex2(s[e] * args.score_scale - (e % 2 == 0 ? base.x : base.y));
        }
      }
      round_to_operand<Rows>(s, p);
      ptx::wgmma_fence();
      multiply_add<Rows, Dim>(dvalue, p, stage.dout);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(dp);
#pragma unroll
      for (int n = 0; n < Rows / 8; ++n) {
        const float2 delta = row_pair(rows.delta, n, at.column);
#pragma unroll
        for (int e = 4 * n; e < 4 * n + 4; ++e) {
          dp[e] = s[e] * (dp[e] - (e % 2 == 0 ? delta.x : delta.y));
        }
      }
      round_to_operand<Rows>(dp, ds);
      ptx::wgmma_fence();
      multiply_add<Rows, Dim>(dkey, ds, stage.q);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(dkey);
      ptx::wgmma_pin(dvalue);
      ptx::wgmma_pin(p);
      ptx::wgmma_pin(ds);
      __syncwarp();  // all lanes have read what belongs to the rows
      shared.queries.release(i);
    }
  }
  if (i == 0) return;
  const int column = kv_head * Dim + at.column, row0 = tile * backward_keys + key0;
  add_rows<Dim>(args.dkey, dkey, args.scale, row0, args.keys, column);
  add_rows<Dim>(args.dvalue, dvalue, 1.0f, row0, args.keys, column);
}

template <int Dim>
__global__ void __launch_bounds__(BackwardRoles<Dim>::threads, 1)
    attention_backward_key_kernel(const __grid_constant__ BackwardArgs args) {
  if constexpr (ptx::has_wgmma) {
    using Roles = BackwardRoles<Dim>;
    CU_DYNAMIC_SHARED(unsigned char, memory);
    const KeyShared<Dim> shared(memory);
    const int kv_heads = args.heads / args.group;
    const int kv_head = static_cast<int>(blockIdx.x) % kv_heads;
    const int tile = ordered_tile(args.tiles, static_cast<int>(blockIdx.x) / kv_heads);
    if (threadIdx.x == 0) {
      shared.queries.init(1 + query_rows<Dim>, Roles::warps);
      shared.keys.init(1, Roles::warps);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
      ptx::setmaxnreg_dec<Roles::loader_registers>();
      load_by_key<Dim>(args, shared, tile, kv_head);
    } else {
      ptx::setmaxnreg_inc<Roles::compute_registers>();
      compute_by_key<Dim>(args, shared, tile, kv_head);
    }
  } else {
    __trap();
  }
}

template <int Dim>
void launch_backward_key(Stream stream, const AttentionBackward<bfloat16>& from) {
  const BackwardArgs args = backward_args(from, from.by_key, query_rows<Dim>);
  const int blocks = ceil_div(args.keys, backward_keys) * from.sizes.kv_heads;
  launch("attention_backward_key_wgmma", attention_backward_key_kernel<Dim>,
         {dim3(static_cast<unsigned>(blocks)), dim3(BackwardRoles<Dim>::threads),
          KeyShared<Dim>::bytes, stream},
         args);
}

}  // namespace hopper

void attention_backward_wgmma(Stream stream, const AttentionBackward<bfloat16>& args) {
  if (args.q.rows == 0 || args.by_key.key.rows == 0) return;
  if (args.sizes.head_dim == 64) {
    hopper::launch_backward_key<64>(stream, args);
  } else {
    hopper::launch_backward_key<128>(stream, args);
  }
  hopper::launch_backward_query(stream, args);
}

}  // namespace bdlm::cuda
