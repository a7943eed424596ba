// SPDX-License-Identifier: Apache-2.0
// The random numbers of kernels/philox.h on the device, to the bit.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {
namespace {

constexpr unsigned threads = 256;

/// Philox::uniform(a, b).
CU_INLINE double uniform(std::uint32_t k0, std::uint32_t k1, std::uint64_t a, std::uint64_t b) {
  auto c0 = static_cast<std::uint32_t>(b), c1 = static_cast<std::uint32_t>(b >> 32);
  auto c2 = static_cast<std::uint32_t>(a), c3 = static_cast<std::uint32_t>(a >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xd2511f53ull * c0, p1 = 0xcd9e8d57ull * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  const std::uint64_t wide = (static_cast<std::uint64_t>(c0) << 32) | c1;
  return static_cast<double>(wide >> 11) * 0x1.0p-53;
}

__global__ void __launch_bounds__(threads)
    fill_uniform(std::uint32_t key0, std::uint32_t key1, std::uint64_t a, std::uint64_t b0,
                 View<double> out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= out.rows * out.cols) return;
  out.data[i / out.cols * out.stride + i % out.cols] =
      uniform(key0, key1, a, b0 + static_cast<std::uint64_t>(i));
}

}  // namespace

void philox_uniform(Stream stream, std::uint32_t key0, std::uint32_t key1, std::uint64_t a,
                    std::uint64_t b0, View<double> out) {
  const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(out.rows * out.cols, threads));
  launch("philox_uniform", fill_uniform, {dim3(blocks), dim3(threads), 0, stream}, key0, key1, a,
         b0, out);
}

}  // namespace bdlm::cuda
