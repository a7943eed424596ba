// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/cp_async.h"

#include "kernels/emu/shared_memory.h"
#include "kernels/emu/worker.h"

namespace bdlm::emu {
namespace {

// Plain accesses, not memcpy, that the sanitizers see as those of the CUDA thread.
void land(const ElementCopy& c) {
  if (c.source_bytes == 16) {
    *static_cast<uint4*>(c.to) = *static_cast<const uint4*>(c.from);
    return;
  }
  auto* to = static_cast<unsigned char*>(c.to);
  const auto* from = static_cast<const unsigned char*>(c.from);
  for (std::uint32_t i = 0; i < c.bytes; ++i) to[i] = i < c.source_bytes ? from[i] : 0;
}

}  // namespace

void issue_copy(void* to, const void* from, std::uint32_t bytes, std::uint32_t source_bytes) {
  check_aligned(to, bytes, "cp.async destination");
  if (source_bytes) check_aligned(from, bytes, "cp.async source");
  at_shared_address(shared_address(to, "cp.async"), bytes, "cp.async");
  const ElementCopy copy{to, from, bytes, source_bytes};
  bool at_once;
  {
    const IgnoreRaces ignore;
    Worker& w = *worker;
    ++w.stats.cp_async;
    at_once = w.mode.async == Async::eager || (w.mode.async == Async::random && (w.random() & 1));
    if (!at_once) w.current->copies.add(copy);
  }
  if (at_once) land(copy);
}

void commit_copies() {
  const IgnoreRaces ignore;
  worker->current->copies.commit();
}

void wait_copies(int most_pending) {
  auto& copies = worker->current->copies;
  while (int(copies.pending()) > most_pending) copies.finish_one(land);
}

}  // namespace bdlm::emu
