// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/matrix.h"

#include <bit>
#include <cstring>

#include "kernels/emu/collective.h"
#include "kernels/emu/shared_memory.h"
#include "kernels/emu/sync.h"

namespace bdlm::emu {
namespace {

constexpr std::uint32_t all_lanes = 0xffffffffu;

struct MatrixLoad {
  uint4 row;
  std::uint32_t chunk;  // which 16-byte chunk of shared memory the row is
  int count;
  bool transposed;
  std::uint32_t result[4];
};

void execute_load(void* const* arguments, std::uint32_t) {
  const auto of = [&](int lane) -> MatrixLoad& {
    return *static_cast<MatrixLoad*>(arguments[lane]);
  };
  Stats& stats = worker->stats;
  for (int j = 0; j < of(0).count; ++j) {
    std::uint16_t m[8][8];
    std::uint32_t banks = 0;  // a row is four of the 32 banks wide
    for (int row = 0; row < 8; ++row) {
      const MatrixLoad& a = of(8 * j + row);
      std::memcpy(m[row], &a.row, 16);
      const std::uint32_t bank = 1u << (a.chunk & 7);
      if (banks & bank) ++stats.ldmatrix_conflicts;
      banks |= bank;
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane >> 2, pair = 2 * (lane & 3);
      const std::uint32_t low = of(0).transposed ? m[pair][group] : m[group][pair];
      const std::uint32_t high = of(0).transposed ? m[pair + 1][group] : m[group][pair + 1];
      of(lane).result[j] = low | high << 16;
    }
  }
  ++stats.ldmatrix;
}

using Vector [[gnu::vector_size(32)]] = float;  // eight columns

struct Product {
  const std::uint32_t *a, *b;
  const float* c;
  float* d;
};

float low(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float high(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

void execute_product(void* const* arguments, std::uint32_t) {
  float a[16][16];
  Vector b[16], sum[16];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& p = *static_cast<const Product*>(arguments[lane]);
    const int g = lane >> 2, t = 2 * (lane & 3);
    for (int i = 0; i < 4; ++i) {  // rows g and g + 8, columns t and t + 8
      float* to = &a[g + 8 * (i & 1)][t + 8 * (i >> 1)];
      to[0] = low(p.a[i]);
      to[1] = high(p.a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      b[t + 8 * i][g] = low(p.b[i]);
      b[t + 8 * i + 1][g] = high(p.b[i]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    Vector total{};
    for (int k = 0; k < 16; ++k) total += a[row][k] * b[k];  // products are exact in float
    sum[row] = total;
  }
  for (int lane = 0; lane < 32; ++lane) {
    const auto& p = *static_cast<const Product*>(arguments[lane]);
    const int g = lane >> 2, t = 2 * (lane & 3);
    for (int i = 0; i < 4; ++i) p.d[i] = p.c[i] + sum[g + 8 * (i >> 1)][t + (i & 1)];
  }
  ++worker->stats.mma;
}

}  // namespace

void load_matrices(std::uint32_t* result, int count, bool transposed, const void* row,
                   Location at) {
  MatrixLoad a;
  a.count = count;
  a.transposed = transposed;
  if (lane() < 8 * count) {  // the other lanes' addresses are ignored
    check_aligned(row, 16, "ldmatrix");
    const std::uint32_t address = shared_address(row, "ldmatrix");
    at_shared_address(address, 16, "ldmatrix");
    a.chunk = address >> 4;
    a.row = *static_cast<const uint4*>(row);  // read by this lane, for the sanitizers
  }
  collective(all_lanes, Collective::ldmatrix, &a, execute_load, at);
  for (int j = 0; j < count; ++j) result[j] = a.result[j];
}

void multiply_fragments(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                        const float (&c)[4], Location at) {
  Product p{a, b, c, d};
  collective(all_lanes, Collective::mma, &p, execute_product, at);
}

}  // namespace bdlm::emu
