// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/mbarrier.h"

#include "kernels/emu/shared_memory.h"
#include "kernels/emu/worker.h"

namespace bdlm::emu {
namespace {

struct State64 {
  std::uint32_t pending, count, bytes, phase;

  static State64 load(const std::uint64_t* p) {
    const std::uint64_t v = *p;
    return {std::uint32_t(v & 0xfffff), std::uint32_t(v >> 20 & 0xfffff),
            std::uint32_t(v >> 40 & 0x3fffff), std::uint32_t(v >> 63)};
  }
  void store(std::uint64_t* p) {
    if (pending == 0 && bytes == 0) {
      phase ^= 1;
      pending = count;
    }
    *p = pending | std::uint64_t(count) << 20 | std::uint64_t(bytes) << 40 |
         std::uint64_t(phase) << 63;
  }
};

void arrive(std::uint64_t* barrier, std::uint32_t bytes, const char* what) {
  const IgnoreRaces ignore;
  check_barrier(barrier);
  emu::release(barrier);
  State64 s = State64::load(barrier);
  if (s.pending == 0) fail("%s: more arrivals than the count %u of this phase", what, s.count);
  --s.pending;
  s.bytes = (s.bytes + bytes) & 0x3fffff;
  s.store(barrier);
  ++worker->progress;
}

}  // namespace

void check_barrier(const std::uint64_t* barrier) {
  check_aligned(barrier, 8, "mbarrier");
  at_shared_address(shared_address(barrier, "mbarrier"), 8, "mbarrier");
}

void complete_bytes(std::uint64_t* barrier, std::uint32_t bytes) {
  const IgnoreRaces ignore;
  emu::release(barrier);
  State64 s = State64::load(barrier);
  s.bytes = (s.bytes - bytes) & 0x3fffff;  // bytes may land before they are expected
  s.store(barrier);
}

}  // namespace bdlm::emu

namespace bdlm::cuda::ptx {

void mbarrier_init(std::uint64_t* barrier, std::uint32_t count) {
  const emu::IgnoreRaces ignore;
  emu::check_barrier(barrier);
  if (count == 0 || count > 0xfffff) emu::fail("mbarrier.init: count %u", count);
  emu::State64{count, count, 0, 0}.store(barrier);
}

void mbarrier_arrive(std::uint64_t* barrier) { emu::arrive(barrier, 0, "mbarrier.arrive"); }

void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes) {
  emu::arrive(barrier, bytes, "mbarrier.arrive.expect_tx");
}

bool mbarrier_test(std::uint64_t* barrier, std::uint32_t parity) {
  const emu::IgnoreRaces ignore;
  emu::check_barrier(barrier);
  if (emu::State64::load(barrier).phase == (parity & 1)) return false;
  emu::acquire(barrier);
  return true;
}

void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity, emu::Location at) {
  while (!mbarrier_test(barrier, parity)) emu::worker->poll("mbarrier wait", at);
}

}  // namespace bdlm::cuda::ptx
