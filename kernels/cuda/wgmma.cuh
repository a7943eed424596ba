// SPDX-License-Identifier: Apache-2.0
// Part of ptx.cuh: wgmma.mma_async for bfloat16 with float sums. An instruction names each of its N
// / 2 accumulators twice, in its text by number and as an operand; the macros spell these lists.
#pragma once

// Accumulators by number, 16 in a line.
#define PTX_TEXT_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define PTX_TEXT_1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define PTX_TEXT_2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define PTX_TEXT_3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define PTX_TEXT_4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define PTX_TEXT_5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define PTX_TEXT_6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define PTX_TEXT_7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define PTX_TEXT8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define PTX_TEXT16 PTX_TEXT_0
#define PTX_TEXT32 PTX_TEXT16 "," PTX_TEXT_1
#define PTX_TEXT48 PTX_TEXT32 "," PTX_TEXT_2
#define PTX_TEXT64 PTX_TEXT48 "," PTX_TEXT_3
#define PTX_TEXT96 PTX_TEXT64 "," PTX_TEXT_4 "," PTX_TEXT_5
#define PTX_TEXT128 PTX_TEXT96 "," PTX_TEXT_6 "," PTX_TEXT_7
// Accumulators as operands, from d[i] on.
#define PTX_D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define PTX_D8(i) PTX_D4(i), PTX_D4((i) + 4)
#define PTX_D16(i) PTX_D8(i), PTX_D8((i) + 8)
#define PTX_D32(i) PTX_D16(i), PTX_D16((i) + 16)
#define PTX_D48(i) PTX_D32(i), PTX_D16((i) + 32)
#define PTX_D64(i) PTX_D32(i), PTX_D32((i) + 32)
#define PTX_D96(i) PTX_D64(i), PTX_D32((i) + 64)
#define PTX_D128(i) PTX_D64(i), PTX_D64((i) + 64)

// For N columns and count = N / 2 accumulators; the rest are the numbers of the operands after
// them.
#define PTX_WGMMA_SS(n, count, a, b, keep, a_mn, b_mn)                                             \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #keep                                        \
               ", 0;\n wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" PTX_TEXT##count \
               "}, %" #a ", %" #b ", p, 1, 1, %" #a_mn ", %" #b_mn ";\n}"                          \
               : PTX_D##count(0)                                                                   \
               : "l"(da), "l"(db), "r"(int(accumulate)), "n"(int(AMn)), "n"(int(BMn)))
#define PTX_WGMMA_RS(n, count, a0, a1, a2, a3, b, keep, b_mn)                                      \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #keep                                        \
               ", 0;\n wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" PTX_TEXT##count \
               "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #b ", p, 1, 1, %" #b_mn ";\n}"        \
               : PTX_D##count(0)                                                                   \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(int(accumulate)),        \
                 "n"(int(BMn)))

namespace bdlm::cuda::ptx {

/// d (64 x N) = or += a (64 x 16) * b (16 x N), both in shared memory behind descriptors. AMn, BMn:
/// the operand lies with its rows (columns) and not the 16 beside each other.
template <int N, bool AMn = false, bool BMn = false>
PTX_FN void wgmma_m64k16_ss(float (&d)[N / 2], uint64_t da, uint64_t db, bool accumulate) {
  static_assert(N == 16 || N == 32 || N == 64 || N == 96 || N == 128 || N == 192 || N == 256);
#if PTX_WGMMA_OK
  if constexpr (N == 16) PTX_WGMMA_SS(16, 8, 8, 9, 10, 11, 12);
  if constexpr (N == 32) PTX_WGMMA_SS(32, 16, 16, 17, 18, 19, 20);
  if constexpr (N == 64) PTX_WGMMA_SS(64, 32, 32, 33, 34, 35, 36);
  if constexpr (N == 96) PTX_WGMMA_SS(96, 48, 48, 49, 50, 51, 52);
  if constexpr (N == 128) PTX_WGMMA_SS(128, 64, 64, 65, 66, 67, 68);
  if constexpr (N == 192) PTX_WGMMA_SS(192, 96, 96, 97, 98, 99, 100);
  if constexpr (N == 256) PTX_WGMMA_SS(256, 128, 128, 129, 130, 131, 132);
#endif
}

/// The same with a in registers.
template <int N, bool BMn = false>
PTX_FN void wgmma_m64k16_rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t db,
                            bool accumulate) {
  static_assert(N == 16 || N == 32 || N == 64 || N == 96 || N == 128 || N == 192 || N == 256);
#if PTX_WGMMA_OK
  if constexpr (N == 16) PTX_WGMMA_RS(16, 8, 8, 9, 10, 11, 12, 13, 14);
  if constexpr (N == 32) PTX_WGMMA_RS(32, 16, 16, 17, 18, 19, 20, 21, 22);
  if constexpr (N == 64) PTX_WGMMA_RS(64, 32, 32, 33, 34, 35, 36, 37, 38);
  if constexpr (N == 96) PTX_WGMMA_RS(96, 48, 48, 49, 50, 51, 52, 53, 54);
  if constexpr (N == 128) PTX_WGMMA_RS(128, 64, 64, 65, 66, 67, 68, 69, 70);
  if constexpr (N == 192) PTX_WGMMA_RS(192, 96, 96, 97, 98, 99, 100, 101, 102);
  if constexpr (N == 256) PTX_WGMMA_RS(256, 128, 128, 129, 130, 131, 132, 133, 134);
#endif
}

}  // namespace bdlm::cuda::ptx

#undef PTX_TEXT_0
#undef PTX_TEXT_1
#undef PTX_TEXT_2
#undef PTX_TEXT_3
#undef PTX_TEXT_4
#undef PTX_TEXT_5
#undef PTX_TEXT_6
#undef PTX_TEXT_7
#undef PTX_TEXT8
#undef PTX_TEXT16
#undef PTX_TEXT32
#undef PTX_TEXT48
#undef PTX_TEXT64
#undef PTX_TEXT96
#undef PTX_TEXT128
#undef PTX_D4
#undef PTX_D8
#undef PTX_D16
#undef PTX_D32
#undef PTX_D48
#undef PTX_D64
#undef PTX_D96
#undef PTX_D128
#undef PTX_WGMMA_SS
#undef PTX_WGMMA_RS
