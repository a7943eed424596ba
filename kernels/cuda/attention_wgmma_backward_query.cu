// SPDX-License-Identifier: Apache-2.0
// Interval attention backward on Hopper: the gradient of the queries. A block takes 128 query rows
// of one head, 64 a warp group, and goes through the tiles of 128 keys that they see.
#include "kernels/cuda/attention_wgmma_backward.cuh"
#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda::hopper {

inline constexpr int tile_rows = BackwardRoles<64>::rows;
static_assert(wgmma_tiles(64).backward_query == AttentionTiles{tile_rows, backward_keys});
static_assert(wgmma_tiles(128).backward_query == AttentionTiles{tile_rows, backward_keys});

template <int Dim>
struct QueryShared {
  static constexpr unsigned stages = Dim == 64 ? 4 : 2;
  using Queries = Tile<tile_rows, Dim>;
  using Keys = Tile<backward_keys, Dim>;
  static constexpr std::size_t bytes =
      2 * Queries::bytes + 2 * stages * Keys::bytes + 2 * Ring<stages>::bytes + Ring<1>::bytes;

  unsigned char *q, *dout, *key, *value;
  Ring<stages> keys, values;
  Ring<1> queries;

  CU_INLINE explicit QueryShared(unsigned char* memory)
      : q(memory),
        dout(q + Queries::bytes),
        key(dout + Queries::bytes),
        value(key + stages * Keys::bytes) {
    keys.full = reinterpret_cast<std::uint64_t*>(value + stages * Keys::bytes);
    values.full = keys.full + 2 * stages;
    queries.full = values.full + 2 * stages;
  }
  CU_INLINE unsigned char* key_tile(unsigned i) const { return key + keys.stage(i) * Keys::bytes; }
  CU_INLINE unsigned char* value_tile(unsigned i) const {
    return value + values.stage(i) * Keys::bytes;
  }
};

template <int Dim>
CU_INLINE void load_by_query(const BackwardArgs& args, const QueryShared<Dim>& shared, int tile,
                             int head) {
  using Shared = QueryShared<Dim>;
  TileWalk walk(&args.tiles, 1, tile);
  for (unsigned i = 0; walk.next(); ++i) {
    const int key = walk.tile * backward_keys, kv_head = head / args.group;
    if (i == 0) {
      std::uint64_t* const arrived = shared.queries.expect(0, 2 * Shared::Queries::bytes);
      Shared::Queries::load(shared.q, args.q, arrived, head, tile * tile_rows);
      Shared::Queries::load(shared.dout, args.dout, arrived, head, tile * tile_rows);
    }
    shared.keys.wait_empty(i);
    Shared::Keys::load(shared.key_tile(i), args.key, shared.keys.expect(i, Shared::Keys::bytes),
                       kv_head, key);
    shared.values.wait_empty(i);
    Shared::Keys::load(shared.value_tile(i), args.value,
                       shared.values.expect(i, Shared::Keys::bytes), kv_head, key);
  }
}

template <int Dim>
CU_INLINE void compute_by_query(const BackwardArgs& args, const QueryShared<Dim>& shared, int tile,
                                int head) {
  constexpr int Keys = backward_keys;
  const int consumer = static_cast<int>(threadIdx.x >> 7) - 1;
  const Fragment at(threadIdx.x & 127);
  const int row0 = tile * tile_rows + consumer * 64 + at.first;
  TileWalk walk(&args.tiles, 1, tile);
  if (!walk.next()) return;
  float dq[Dim / 2];
#pragma unroll
  for (int i = 0; i < Dim / 2; ++i) dq[i] = 0;
  RowSums sums[2];
  Interval seen[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sums[h] = row_sums(args, row0 + 8 * h, head);
    seen[h] = interval_of(args.visible, row0 + 8 * h, args.rows);
  }
  shared.queries.wait_full(0);

  unsigned i = 0;
  do {
    float s[Keys / 2], dp[Keys / 2];
    std::uint32_t ds[Keys / 16][4];
    shared.keys.wait_full(i);
    ptx::wgmma_fence();
    multiply_transposed<tile_rows, Keys, Dim>(s, shared.q, consumer * 64, shared.key_tile(i));
    ptx::wgmma_commit();
    shared.values.wait_full(i);
    ptx::wgmma_fence();
    multiply_transposed<tile_rows, Keys, Dim>(dp, shared.dout, consumer * 64, shared.value_tile(i));
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    ptx::wgmma_pin(s);
    if (walk.masked) mask_scores<Keys>(s, seen, walk.tile * Keys + at.column);
#pragma unroll
    for (int e = 0; e < Keys / 2; ++e) {
      s[e] = ptx::ex2(s[e] * args.score_scale - sums[e >> 1 & 1].base);
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(dp);
    shared.values.release(i);
#pragma unroll
    for (int e = 0; e < Keys / 2; ++e) s[e] *= dp[e] - sums[e >> 1 & 1].delta;
    round_to_operand<Keys>(s, ds);
    ptx::wgmma_fence();
    multiply_add<Keys, Dim>(dq, ds, shared.key_tile(i));
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(dq);
    ptx::wgmma_pin(ds);
    shared.keys.release(i);
    ++i;
  } while (walk.next());
  add_rows<Dim>(args.dq, dq, args.scale, row0, args.rows, head * Dim + at.column);
}

template <int Dim>
__global__ void __launch_bounds__(BackwardRoles<Dim>::threads, 1)
    attention_backward_query_kernel(const __grid_constant__ BackwardArgs args) {
  if constexpr (ptx::has_wgmma) {
    using Roles = BackwardRoles<Dim>;
    CU_DYNAMIC_SHARED(unsigned char, memory);
    const QueryShared<Dim> shared(memory);
    const int head = static_cast<int>(blockIdx.x) % args.heads;
    const int tile = ordered_tile(args.tiles, static_cast<int>(blockIdx.x) / args.heads);
    if (threadIdx.x == 0) {
      shared.queries.init(1, Roles::warps);
      shared.keys.init(1, Roles::warps);
      shared.values.init(1, Roles::warps);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
      ptx::setmaxnreg_dec<Roles::loader_registers>();
      if (threadIdx.x == 0) load_by_query<Dim>(args, shared, tile, head);
    } else {
      ptx::setmaxnreg_inc<Roles::compute_registers>();
      compute_by_query<Dim>(args, shared, tile, head);
    }
  } else {
    __trap();
  }
}

template <int Dim>
void launch_by_query(Stream stream, const AttentionBackward<bfloat16>& from) {
  const BackwardArgs args = backward_args(from, from.by_query, tile_rows);
  const int blocks = ceil_div(args.rows, tile_rows) * args.heads;
  launch("attention_backward_query_wgmma", attention_backward_query_kernel<Dim>,
         {dim3(static_cast<unsigned>(blocks)), dim3(BackwardRoles<Dim>::threads),
          QueryShared<Dim>::bytes, stream},
         args);
}

void launch_backward_query(Stream stream, const AttentionBackward<bfloat16>& args) {
  if (args.sizes.head_dim == 64) {
    launch_by_query<64>(stream, args);
  } else {
    launch_by_query<128>(stream, args);
  }
}

}  // namespace bdlm::cuda::hopper
