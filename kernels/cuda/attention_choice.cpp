// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_ops.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/attention_wgmma_tiles.h"

namespace bdlm::cuda {

AttentionChoice choose_attention(bool bf16, std::int64_t head_dim, int compute, bool aligned) {
  const bool tensor_cores =
      bf16 && aligned && compute >= 80 && head_dim % 8 == 0 && head_dim <= 256;
  if (!tensor_cores) return {AttentionKernel::simple, simple_tiles, simple_tiles, simple_tiles};
  // These instructions exist on Hopper only, not after it.
  if (compute == 90 && (head_dim == 64 || head_dim == 128)) {
    const WgmmaTiles tiles = wgmma_tiles(head_dim);
    return {AttentionKernel::wgmma, tiles.forward, tiles.backward_query, tiles.backward_key};
  }
  const MmaTiles tiles = mma_tiles(mma_channels(head_dim));
  return {AttentionKernel::mma, tiles.forward, tiles.backward_query, tiles.backward_key};
}

}  // namespace bdlm::cuda
