// SPDX-License-Identifier: Apache-2.0
// One kernel with a switch for each mistake: every mistake must show in some mode, as a report or
// as a wrong result, and the right kernel in none.
#include <cmath>
#include <vector>

#include "kernels/cuda/platform.cuh"
#include "tests/kernels/emu/modes.h"

using namespace bdlm;
namespace ptx = bdlm::cuda::ptx;

namespace {

enum class Bug {
  none,
  no_wait,            // cp.async read before it is waited for
  weak_wait,          // one group too few waited for
  no_barrier_after,   // another thread's copy read without a barrier
  no_barrier_before,  // a stage refilled while others may read it
  wrong_stage,        // prefetch into the stage in use
  divergent_barrier,  // a barrier that one warp skips once
  divergent_shuffle,  // a shuffle that one lane skips
  narrow_reduction,   // a step of the butterfly missing
  no_bounds,          // a ragged tail read as if whole
  shared_too_small,   // fewer bytes asked for than used
  unwritten_sums      // shared memory read that nothing wrote
};

constexpr int threads = 64, tile = 4 * threads;  // floats; a thread copies and reads four

/// out[block] = sum of a row, by tiles of a double-buffered pipeline; threads read what their
/// neighbours in the next warp copied.
__global__ void pipeline(const float* x, float* out, int cols, Bug bug) {
  CU_DYNAMIC_SHARED(float, s);
  float* sums = s + 2 * tile;
  const int t = int(threadIdx.x), lane = t % 32, warp = t / 32, tiles = (cols + tile - 1) / tile;
  const float* row = x + std::int64_t(blockIdx.x) * cols;
  const auto fetch = [&](int i) {
    const int stage = bug == Bug::wrong_stage && i ? (i + 1) % 2 : i % 2;
    const int c = i * tile + 4 * t;
    if (i < tiles) {
      const bool inside = c < cols || bug == Bug::no_bounds;
      ptx::cp_async_zfill<16>(s + stage * tile + 4 * t, row + c, inside);
    }
    ptx::cp_async_commit();
  };
  fetch(0);
  float sum = 0;
  for (int i = 0; i < tiles; ++i) {
    fetch(i + 1);
    if (bug == Bug::weak_wait) {
      ptx::cp_async_wait<2>();
    } else if (bug != Bug::no_wait) {
      ptx::cp_async_wait<1>();
    }
    if (bug == Bug::divergent_barrier) {
      if (warp != 1 || i != 0) __syncthreads();
    } else if (bug != Bug::no_barrier_after) {
      __syncthreads();
    }
    const float* from = s + i % 2 * tile + (4 * t + 128) % tile;
    for (int j = 0; j < 4; ++j) sum += from[j];
    if (bug != Bug::no_barrier_before) __syncthreads();
  }
  for (int d = 16; d; d >>= 1) {
    if (bug == Bug::narrow_reduction && d == 2) continue;
    if (bug == Bug::divergent_shuffle && lane == 5) continue;
    sum += __shfl_xor_sync(0xffffffffu, sum, d);
  }
  if (lane == 0 && !(bug == Bug::unwritten_sums && warp == 1)) sums[warp] = sum;
  __syncthreads();
  if (t == 0) out[blockIdx.x] = sums[0] + sums[1];
}

bool noticed(Bug bug) {
  const int cols = 3 * tile + 36;
  std::vector<float> x(2 * std::size_t(cols) + tile);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(i % 13) - 5;
  std::vector<float> out(2, NAN);
  const std::size_t bytes = (2 * tile + 2) * sizeof(float);
  const std::string text = emu::report_of([&] {
    emu::launch("pipeline", pipeline, 2, threads, bug == Bug::shared_too_small ? 1024 : bytes,
                nullptr, x.data(), out.data(), cols, bug);
  });
  for (std::size_t r = 0; r < 2 && text.empty(); ++r) {
    float sum = 0;
    for (std::size_t c = 0; c < std::size_t(cols); ++c) sum += x[r * std::size_t(cols) + c];
    if (out[r] != sum) return true;
  }
  return !text.empty();
}

}  // namespace

TEST_CASE("each planted bug is noticed in some mode and the right kernel in none") {
  for (int bug = 0; bug <= int(Bug::unwritten_sums); ++bug) {
#if BDLM_EMU_TSAN
    continue;  // it reports the races as such
#endif
    int count = 0;
    emu::in_all_modes([&] { count += noticed(Bug(bug)); });
    INFO("bug " << bug << " noticed in " << count << " modes");
    CHECK((count > 0) == (bug > 0));
  }
}
