// SPDX-License-Identifier: Apache-2.0
// Interval attention forward on Hopper. A block takes the query rows of one head that its computing
// warp groups hold, 64 each; one thread loads tiles of 128 keys and values by TMA. Within a warp
// group the softmax of a tile runs beside the value product of the tile before. The groups take
// turns in issuing products, so that one's softmax runs beside another's products (as in
// FlashAttention-3, Shah et al., arXiv 2407.08608).
#include "kernels/cuda/attention_wgmma_forward.cuh"
#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {
namespace hopper {

template <int Dim>
struct ForwardShared {
  static constexpr unsigned stages = Dim == 64 ? 4 : 2;
  using Queries = Tile<ForwardRoles<Dim>::rows, Dim>;
  using Keys = Tile<forward_keys, Dim>;
  static constexpr std::size_t bytes =
      Queries::bytes + 2 * stages * Keys::bytes + 2 * Ring<stages>::bytes + Ring<1>::bytes;

  unsigned char *q, *key, *value;
  Ring<stages> keys, values;
  Ring<1> queries;

  CU_INLINE explicit ForwardShared(unsigned char* memory)
      : q(memory), key(q + Queries::bytes), value(key + stages * Keys::bytes) {
    auto* barriers = reinterpret_cast<std::uint64_t*>(value + stages * Keys::bytes);
    keys.full = barriers;
    values.full = barriers + 2 * stages;
    queries.full = barriers + 4 * stages;
  }
  CU_INLINE unsigned char* key_tile(unsigned i) const { return key + keys.stage(i) * Keys::bytes; }
  CU_INLINE unsigned char* value_tile(unsigned i) const {
    return value + values.stage(i) * Keys::bytes;
  }
};

template <int Dim>
CU_INLINE void load_forward(const ForwardArgs& args, const ForwardShared<Dim>& shared, int tile,
                            int head) {
  using Shared = ForwardShared<Dim>;
  TileWalk walk(args.tiles, args.sources, tile);
  for (unsigned i = 0; walk.next(); ++i) {
    if (i == 0) {
      Shared::Queries::load(shared.q, args.q, shared.queries.expect(0, Shared::Queries::bytes),
                            head, tile * ForwardRoles<Dim>::rows);
    }
    const int key = walk.tile * forward_keys;
    shared.keys.wait_empty(i);
    Shared::Keys::load(shared.key_tile(i), args.key[walk.source],
                       shared.keys.expect(i, Shared::Keys::bytes), head / args.group, key);
    shared.values.wait_empty(i);
    Shared::Keys::load(shared.value_tile(i), args.value[walk.source],
                       shared.values.expect(i, Shared::Keys::bytes), head / args.group, key);
  }
}

/// The computing groups issue products one after another, each as often as the others; barrier
/// 1 + c is the turn of group c. Only for speed: it keeps them out of step.
template <int Consumers>
class Turns {
 public:
  CU_INLINE explicit Turns(int consumer) : own_(consumer) {}
  /// Counted from 1; the first of all needs no leave.
  CU_INLINE void take(unsigned turn) const {
    if (turn > 1 || own_ > 0) ptx::bar_sync(1 + own_, 256);
  }
  CU_INLINE void pass() const { ptx::bar_arrive(1 + (own_ + 1) % Consumers, 256); }
  CU_INLINE void pass_last() const {
    if (own_ + 1 < Consumers) pass();
  }

 private:
  int own_;
};

template <int Dim>
CU_INLINE void compute_forward(const ForwardArgs& args, const ForwardShared<Dim>& shared, int tile,
                               int head) {
  using Roles = ForwardRoles<Dim>;
  constexpr int Keys = forward_keys;
  const int consumer = (threadIdx.x >> 7) - 1;
  const Fragment at(threadIdx.x & 127);
  const int row0 = tile * Roles::rows + consumer * 64;
  float o[Dim / 2];
#pragma unroll
  for (int i = 0; i < Dim / 2; ++i) o[i] = 0;
  Softmax softmax;

  TileWalk walk(args.tiles, args.sources, tile);
  if (walk.next()) {
    const Turns<Roles::consumers> turns(consumer);
    float s[Keys / 2], factor[2];
    std::uint32_t p[Keys / 16][4];
    int source = -1;
    Interval seen[2];
    const auto mask = [&] {
      if (source != walk.source) {
        source = walk.source;
        for (int h = 0; h < 2; ++h) {
          seen[h] = interval_of(args.visible[source], row0 + at.first + 8 * h, args.rows);
        }
      }
      if (walk.masked) mask_scores<Keys>(s, seen, walk.tile * Keys + at.column);
    };

    shared.queries.wait_full(0);
    shared.keys.wait_full(0);
    ptx::wgmma_fence();
    multiply_transposed<Roles::rows, Keys, Dim>(s, shared.q, consumer * 64, shared.key_tile(0));
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(s);
    shared.keys.release(0);
    mask();
    softmax.add<Keys>(s, args.score_scale, factor);
    round_to_operand<Keys>(s, p);

    unsigned i = 1;
    for (; walk.next(); ++i) {
      shared.keys.wait_full(i);
      shared.values.wait_full(i - 1);
      turns.take(i);
      ptx::wgmma_fence();
      multiply_transposed<Roles::rows, Keys, Dim>(s, shared.q, consumer * 64, shared.key_tile(i));
      ptx::wgmma_commit();
      multiply_add<Keys, Dim>(o, p, shared.value_tile(i - 1));
      ptx::wgmma_commit();
      turns.pass();
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(s);
      shared.keys.release(i);
      mask();
      softmax.add<Keys>(s, args.score_scale, factor);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(o);
      ptx::wgmma_pin(p);
      shared.values.release(i - 1);
      round_to_operand<Keys>(s, p);
#pragma unroll
      for (int e = 0; e < Dim / 2; ++e) o[e] *= factor[e >> 1 & 1];
    }
    shared.values.wait_full(i - 1);
    turns.take(i);
    ptx::wgmma_fence();
    multiply_add<Keys, Dim>(o, p, shared.value_tile(i - 1));
    ptx::wgmma_commit();
    turns.pass_last();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(o);
  }
  ptx::bar_sync(1 + Roles::consumers + consumer,
                128);  // all of the warp group have read its queries
  store_forward<Dim>(args, shared.q + consumer * 64 * 128, o, softmax, row0, head);
}

template <int Dim>
__global__ void __launch_bounds__(ForwardRoles<Dim>::threads, 1)
    attention_forward_kernel(const __grid_constant__ ForwardArgs args) {
  if constexpr (ptx::has_wgmma) {
    using Roles = ForwardRoles<Dim>;
    CU_DYNAMIC_SHARED(unsigned char, memory);
    const ForwardShared<Dim> shared(memory);
    const int head = static_cast<int>(blockIdx.x) % args.heads;
    const int tile = ordered_tile(args.tiles[0], static_cast<int>(blockIdx.x) / args.heads);
    if (threadIdx.x == 0) {
      shared.queries.init(1, Roles::warps);
      shared.keys.init(1, Roles::warps);
      shared.values.init(1, Roles::warps);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
      ptx::setmaxnreg_dec<Roles::loader_registers>();
      if (threadIdx.x == 0) load_forward<Dim>(args, shared, tile, head);
    } else {
      ptx::setmaxnreg_inc<Roles::compute_registers>();
      compute_forward<Dim>(args, shared, tile, head);
    }
  } else {
    __trap();
  }
}

template <int Dim>
void launch_forward(Stream stream, const AttentionForward<bfloat16>& from) {
  using Roles = ForwardRoles<Dim>;
  ForwardArgs args = {};
  args.q = map_of_heads(from.q, Dim, Roles::rows);
  for (int s = 0; s < from.source_count; ++s) {
    const AttentionSource<bfloat16>& source = from.sources[static_cast<std::size_t>(s)];
    if (source.key.rows == 0) continue;
    const int to = args.sources++;
    args.key[to] = map_of_heads(source.key, Dim, forward_keys);
    args.value[to] = map_of_heads(source.value, Dim, forward_keys);
    args.visible[to] = source.visible;
    args.tiles[to] = source.tiles;
  }
  args.heads = from.sizes.heads;
  args.group = from.sizes.heads / from.sizes.kv_heads;
  args.rows = static_cast<int>(from.q.rows);
  args.score_scale = static_cast<float>(from.sizes.scale * 1.4426950408889634);
  args.out = from.out.data;
  args.out_stride = from.out.stride;
  args.out_aligned = reinterpret_cast<std::uintptr_t>(from.out.data) % sizeof(uint4) == 0 &&
                     from.out.stride % 8 == 0;
  args.out_sum = pair_view(from.out_sum);
  args.lse = from.lse.data;
  args.lse_stride = from.lse.stride;
  args.resume = from.resume;
  const auto blocks = static_cast<unsigned>(ceil_div(args.rows, Roles::rows) * args.heads);
  launch("attention_forward_wgmma", attention_forward_kernel<Dim>,
         {dim3(blocks), dim3(Roles::threads), ForwardShared<Dim>::bytes, stream}, args);
}

}  // namespace hopper

void attention_forward_wgmma(Stream stream, const AttentionForward<bfloat16>& args) {
  if (args.q.rows == 0) return;
  if (args.sizes.head_dim == 64) {
    hopper::launch_forward<64>(stream, args);
  } else {
    hopper::launch_forward<128>(stream, args);
  }
}

}  // namespace bdlm::cuda
