// SPDX-License-Identifier: Apache-2.0
// ldmatrix and mma.sync, with the fragment layouts of the PTX manual ("Matrix fragments for
// mma.m16n8k16").
#pragma once

#include <cstdint>

#include "kernels/emu/report.h"

namespace bdlm::emu {
void load_matrices(std::uint32_t* result, int count, bool transposed, const void* row, Location at);
void multiply_fragments(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                        const float (&c)[4], Location at);
}  // namespace bdlm::emu

namespace bdlm::cuda::ptx {

// Lane 8j + r passes the address of row r of 8x8 matrix j. Register j of lane l receives from
// matrix j elements 2 (l % 4) and the next of row l / 4; _trans: of column l / 4.
inline void ldmatrix_x1(std::uint32_t (&r)[1], const void* p,
                        emu::Location at = emu::Location::current()) {
  emu::load_matrices(r, 1, false, p, at);
}
inline void ldmatrix_x2(std::uint32_t (&r)[2], const void* p,
                        emu::Location at = emu::Location::current()) {
  emu::load_matrices(r, 2, false, p, at);
}
inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* p,
                        emu::Location at = emu::Location::current()) {
  emu::load_matrices(r, 4, false, p, at);
}
inline void ldmatrix_x1_trans(std::uint32_t (&r)[1], const void* p,
                              emu::Location at = emu::Location::current()) {
  emu::load_matrices(r, 1, true, p, at);
}
inline void ldmatrix_x2_trans(std::uint32_t (&r)[2], const void* p,
                              emu::Location at = emu::Location::current()) {
  emu::load_matrices(r, 2, true, p, at);
}
inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* p,
                              emu::Location at = emu::Location::current()) {
  emu::load_matrices(r, 4, true, p, at);
}

/// d = a (16x16, by rows) * b (16x8, by columns) + c. d may be c.
inline void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                              const std::uint32_t (&b)[2], const float (&c)[4],
                              emu::Location at = emu::Location::current()) {
  emu::multiply_fragments(d, a, b, c, at);
}

}  // namespace bdlm::cuda::ptx
