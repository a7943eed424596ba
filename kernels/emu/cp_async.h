// SPDX-License-Identifier: Apache-2.0
// cp.async (Ampere). Lazy: bytes land when their group is waited for, so that a missing wait reads
// poison; eager: at issue, so that refilling a stage that is still read corrupts it.
#pragma once

#include <cstdint>

namespace bdlm::emu {
void issue_copy(void* to, const void* from, std::uint32_t bytes, std::uint32_t source_bytes);
void commit_copies();
void wait_copies(int most_pending);
}  // namespace bdlm::emu

namespace bdlm::cuda::ptx {

template <int Bytes = 16>
void cp_async(void* smem, const void* gmem) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  emu::issue_copy(smem, gmem, Bytes, Bytes);
}
template <int Bytes = 16>
void cp_async_zfill(void* smem, const void* gmem, bool valid) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  emu::issue_copy(smem, gmem, Bytes, valid ? Bytes : 0);
}
inline void cp_async_commit() { emu::commit_copies(); }
/// At most N groups of the calling thread stay pending.
template <int N>
void cp_async_wait() {
  emu::wait_copies(N);
}
inline void cp_async_wait_all() {
  emu::commit_copies();
  emu::wait_copies(0);
}

}  // namespace bdlm::cuda::ptx
