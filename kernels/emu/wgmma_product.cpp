// SPDX-License-Identifier: Apache-2.0
// The arithmetic of wgmma and the layouts behind its descriptors (PTX manual, "Asynchronous warp
// group level matrix multiply": canonical layouts).
#include <bit>
#include <cstring>

#include "kernels/emu/wgmma.h"
#include "kernels/emu/worker.h"

namespace bdlm::emu {
namespace {

constexpr int most_n = 256;

using Vector [[gnu::vector_size(32)]] = float;  // also where the compiler does not vectorise
constexpr int vector_width = 8;

struct Descriptor {
  std::uint32_t start, lbo, sbo;
  Swizzle swizzle;
  explicit Descriptor(std::uint64_t d)
      : start(std::uint32_t(d & 0x3fff) << 4),
        lbo(std::uint32_t(d >> 16 & 0x3fff) << 4),
        sbo(std::uint32_t(d >> 32 & 0x3fff) << 4),
        swizzle(Swizzle(int(d >> 62))) {}

  /// Of element (mn, k), k below 16. Eight elements from a multiple of 8 on are contiguous, along k
  /// or, mn_major, along mn.
  std::uint32_t address(bool mn_major, int mn, int k) const {
    constexpr int widths[] = {8, 64, 32, 16};  // elements of a swizzle row
    const int width = widths[int(swizzle)];
    const bool plain = swizzle == Swizzle::none;
    std::uint32_t offset = 0;
    if (!mn_major) {
      offset = std::uint32_t((mn & 7) * width * 2) + std::uint32_t(mn >> 3) * sbo;
      offset +=
          plain ? std::uint32_t(k >> 3) * lbo + std::uint32_t(k & 7) * 2 : std::uint32_t(k) * 2;
    } else if (plain) {
      offset = std::uint32_t((mn & 7) * 2 + (k & 7) * 16) + std::uint32_t(mn >> 3) * sbo +
               std::uint32_t(k >> 3) * lbo;
    } else {
      offset = std::uint32_t(mn % width * 2 + (k & 7) * width * 2) +
               std::uint32_t(mn / width) * lbo + std::uint32_t(k >> 3) * sbo;
    }
    return swizzled(swizzle, start + offset);
  }
};

float widen(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t(bits) << 16); }

/// Reads an operand of `extent` rows or columns and puts element (mn, k) at put(mn, k).
template <class Put>
void read_shared(std::uint64_t descriptor, bool mn_major, int extent, Put&& put) {
  const Descriptor d(descriptor);
  for (int i = 0; i < (mn_major ? extent / 8 : extent); ++i)
    for (int j = 0; j < (mn_major ? 16 : 2); ++j) {
      const int mn = mn_major ? i * 8 : i, k = mn_major ? j : j * 8;
      std::uint16_t chunk[8];
      std::memcpy(chunk, at_shared_address(d.address(mn_major, mn, k), 16, "wgmma descriptor"), 16);
      for (int e = 0; e < 8; ++e)
        put(mn_major ? mn + e : mn, mn_major ? k : k + e) = widen(chunk[e]);
    }
}

}  // namespace

void run(const Wgmma& product) {
  static thread_local float a[64][16];
  static thread_local Vector b[16][most_n / vector_width];
  const int vectors = product.n / vector_width;
  if (product.a_shared) {
    read_shared(product.thread[0].a_descriptor, product.a_mn_major, 64,
                [](int m, int k) -> float& { return a[m][k]; });
  } else {
    for (int t = 0; t < 128; ++t) {
      const int row = (t >> 5) * 16 + ((t & 31) >> 2), col = 2 * (t & 3);
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t pair = product.thread[std::size_t(t)].a[i];
        float* to = &a[row + 8 * (i & 1)][col + 8 * (i >> 1)];
        to[0] = widen(std::uint16_t(pair));
        to[1] = widen(std::uint16_t(pair >> 16));
      }
    }
  }
  read_shared(product.thread[0].b_descriptor, product.b_mn_major, product.n,
              [](int col, int k) -> float& { return reinterpret_cast<float*>(b[k])[col]; });
  for (int row = 0; row < 64; ++row) {
    Vector sum[most_n / vector_width];
    for (int v = 0; v < vectors; ++v) sum[v] = a[row][0] * b[0][v];
    for (int k = 1; k < 16; ++k)
      for (int v = 0; v < vectors; ++v) sum[v] += a[row][k] * b[k][v];
    // The owner of (row, col): lane 4 (row % 8) + col % 8 / 2 of warp row / 16, its register
    // 4 (col / 8) + 2 (row % 16 / 8) + col % 2.
    for (int pair = 0; pair < 4; ++pair) {
      const WgmmaOperands& owner =
          product.thread[std::size_t((row >> 4) * 32 + (row & 7) * 4 + pair)];
      float* d = owner.d + 2 * (row >> 3 & 1);
      for (int v = 0; v < vectors; ++v, d += 4) {
        d[0] = (owner.accumulate ? d[0] : 0.0f) + sum[v][2 * pair];
        d[1] = (owner.accumulate ? d[1] : 0.0f) + sum[v][2 * pair + 1];
      }
    }
  }
  ++worker->stats.wgmma;
}

}  // namespace bdlm::emu
