// SPDX-License-Identifier: Apache-2.0
// The products of attention_products.h on the matrix unit of Intel processors (AMX): bfloat16
// operands, float sums. A right operand holds its rows in pairs, [depth / 2][n][2], as the unit
// reads them.
#pragma once

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#define BDLM_AMX 1

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/attention.h"
#include "kernels/cpu/attention_products.h"

namespace bdlm::attention {

/// Linux gives the unit only to processes that ask for it.
inline bool amx_available() {
  constexpr long request_permission = 0x1023, tile_data = 18;
  static const bool granted = syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  return granted;
}

/// c[m][n] (+)= a[m][depth] b, everything in steps of 32: four tiles of sums, so that each operand
/// tile is used twice. Depth advances by `a_step` elements of a. Not inlined, and with a barrier:
/// the compiler does not know that the tile instructions read memory.
[[gnu::noinline]] inline void amx_multiply(const bfloat16* a, std::int64_t lda, std::int64_t a_step,
                                           const bfloat16* b, std::int64_t ldb, float* c,
                                           std::int64_t ldc, std::int64_t m, std::int64_t n,
                                           std::int64_t depth, bool accumulate) {
  asm volatile("" ::: "memory");
  const std::int64_t a_bytes = lda * 2, b_bytes = ldb * 4, c_bytes = ldc * 4;
  for (std::int64_t j = 0; j < n; j += 32) {
    for (std::int64_t i = 0; i < m; i += 32) {
      float* top = c + i * ldc + j;
      float* bottom = top + 16 * ldc;
      if (accumulate) {
        _tile_loadd(0, top, c_bytes);
        _tile_loadd(1, top + 16, c_bytes);
        _tile_loadd(2, bottom, c_bytes);
        _tile_loadd(3, bottom + 16, c_bytes);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      const bfloat16* left = a + i * lda;
      const bfloat16* right = b + 2 * j;
      for (std::int64_t p = 0; p < depth; p += 32) {
        _tile_loadd(4, left, a_bytes);
        _tile_loadd(6, right, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, right + 32, b_bytes);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, left + 16 * lda, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        left += a_step;
        right += 32 * ldb;
      }
      _tile_stored(0, top, c_bytes);
      _tile_stored(1, top + 16, c_bytes);
      _tile_stored(2, bottom, c_bytes);
      _tile_stored(3, bottom + 16, c_bytes);
    }
  }
}

/// Tiles have 32 channels or more: narrow heads are faster in vectors.
inline bool use_amx(const AttentionShape& shape) { return shape.head_dim > 16 && amx_available(); }

struct AmxProducts {
  using Sum = float;
  using Operand = bfloat16;
  static constexpr Precision precision = Precision::rounded;
  static constexpr int lanes = 32;
  static constexpr int channel_step = 32;
  static constexpr int row_step = 32;
  static constexpr int key_tile = 128;
  static constexpr int panels = 16;
  static constexpr bool copies = true;

  /// The unit's tiles: all eight of 16 rows x 64 bytes.
  struct Session {
    Session() {
      struct alignas(64) {
        std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
        std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
      } config;
      asm volatile("" : : "m"(config));
      _tile_loadconfig(&config);
    }
    ~Session() { _tile_release(); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
  };

  static const bfloat16* query_columns(const bfloat16* rows, Channels d, bfloat16* to) {
    for (std::int64_t r = 0; r < lanes; r += 16) {
      for (std::int64_t c = 0; c < d.padded; c += 32) {
        Vector<float> square[16];
        for (int i = 0; i < 16; ++i) square[i] = _mm512_load_ps(rows + (r + i) * d.padded + c);
        transpose_step<1, float>(square);
        for (int i = 0; i < 16; ++i) _mm512_store_ps(to + (c + 2 * i) * lanes + 2 * r, square[i]);
      }
    }
    return to;
  }

  static const bfloat16* query_rows(const bfloat16* rows, Channels d, bfloat16* to) {
    for (std::int64_t r = 0; r < lanes; r += 2) {
      for (std::int64_t c = 0; c < d.padded; c += 16) {
        _mm512_store_si512(to + r * d.padded + 2 * c, pair(rows + r * d.padded + c, d.padded));
      }
    }
    return to;
  }

  static const bfloat16* key_columns(const bfloat16* keys, std::int64_t count, Channels d,
                                     bfloat16* to) {
    for (std::int64_t k = 0; k < count; k += 32) {
      for (std::int64_t c = 0; c < d.padded; c += 16) {
        Vector<float> square[16];
        for (int i = 0; i < 16; ++i) {
          square[i] = _mm512_castsi512_ps(pair(keys + (k + 2 * i) * d.padded + c, d.padded));
        }
        transpose_step<1, float>(square);
        for (int i = 0; i < 16; ++i) _mm512_store_ps(to + (c + i) * column_stride + k, square[i]);
      }
    }
    return to;
  }

  static const bfloat16* score_pairs(float* scores, std::int64_t count, bfloat16* to) {
    const std::int64_t rows = clear_spare_rows(scores, count);
    for (std::int64_t k = 0; k < rows; k += 2) {
      for (int v = 0; v < lanes; v += 16) {
        const float* s = scores + k * lanes + v;
        const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_load_ps(s + lanes), _mm512_load_ps(s));
        _mm512_store_si512(to + k * lanes + 2 * v,
                           std::bit_cast<__m512i>(__builtin_shuffle(
                               std::bit_cast<Halves>(both), std::bit_cast<Halves>(interleave))));
      }
    }
    return to;
  }

  static const bfloat16* score_rows(float* scores, std::int64_t count, bfloat16* to) {
    const std::int64_t rows = clear_spare_rows(scores, count);
    for (std::int64_t k = 0; k < rows * lanes; k += 32) {
      const __m512bh both =
          _mm512_cvtne2ps_pbh(_mm512_load_ps(scores + k + 16), _mm512_load_ps(scores + k));
      _mm512_store_si512(to + k, std::bit_cast<__m512i>(both));
    }
    return to;
  }

  static void scores(const bfloat16* keys, const bfloat16* query_columns, Channels d,
                     std::int64_t count, float* c) {
    amx_multiply(keys, d.padded, 32, query_columns, lanes, c, lanes, round_up(count, 32), lanes,
                 d.padded, false);
  }
  static void outputs(const bfloat16* key_columns, std::int64_t first, Channels d,
                      const bfloat16* scores, std::int64_t count, float* c) {
    amx_multiply(key_columns + first, column_stride, 32, scores, lanes, c, lanes, d.padded, lanes,
                 round_up(count, 32), true);
  }
  static void sums(const bfloat16* scores, std::int64_t stride, const bfloat16* query_rows,
                   std::int64_t panels, Channels d, std::int64_t count, float* c) {
    amx_multiply(scores, lanes, stride, query_rows, d.padded, c, d.padded, round_up(count, 32),
                 d.padded, panels * lanes, true);
  }

 private:
  using Halves = Vector<std::uint16_t>;

  static constexpr std::int64_t column_stride = key_tile + row_step;
  static constexpr auto interleave = [] {
    std::array<std::uint16_t, 32> order{};
    for (std::uint16_t i = 0; i < 32; ++i) {
      order[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 16);
    }
    return order;
  }();

  /// 16 pairs of an element and the one below it.
  static __m512i pair(const bfloat16* row, std::int64_t ld) {
    typedef std::uint16_t Half __attribute__((vector_size(32), may_alias));
    const auto widen = [](const bfloat16* p) {
      return __builtin_convertvector(*reinterpret_cast<const Half*>(p), Vector<std::uint32_t>);
    };
    return std::bit_cast<__m512i>(widen(row) | widen(row + ld) << 16);
  }

  static std::int64_t clear_spare_rows(float* scores, std::int64_t count) {
    const std::int64_t rows = round_up(count, 32);
    std::fill(scores + count * lanes, scores + rows * lanes, 0.0f);
    return rows;
  }
};

}  // namespace bdlm::attention

#endif
