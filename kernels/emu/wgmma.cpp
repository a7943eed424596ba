// SPDX-License-Identifier: Apache-2.0
// When warp group products are computed; what they compute is in wgmma_product.cpp.
#include "kernels/emu/wgmma.h"

#include "kernels/emu/worker.h"
#include "kernels/emu/worker_switch.h"

namespace bdlm::emu {
namespace {

WarpGroup& own_group(const char* what) {
  Worker& w = *worker;
  const std::uint32_t group = w.current->linear >> 7;
  if (w.mode.compute < 90) fail("%s needs compute capability 9.0", what);
  if ((group + 1) * 128 > w.threads) fail("%s: warp group %u is not complete", what, group);
  return w.groups[group];
}

/// Whether the calling thread is the last of the 128; if not it has waited for that one.
[[gnu::always_inline]] inline bool meet(std::uint32_t& arrived, const char* what, Location at) {
  if (++arrived < 128) {
    worker->wait(what, 0, at);
    return false;
  }
  arrived = 0;
  return true;
}

void wake_group() {
  Worker& w = *worker;
  ++w.progress;
  const std::uint32_t first_warp = w.current->linear >> 7 << 2;
  for (std::uint32_t warp = first_warp; warp < first_warp + 4; ++warp) {
    const bool own = warp == w.current->warp();
    w.make_ready_lanes(warp, own ? ~(1u << w.current->lane()) : ~0u);
  }
}

void check_uniform(const Wgmma& product, const Location& at) {
  const WgmmaOperands& first = product.thread[0];
  for (const WgmmaOperands& other : product.thread)
    if ((product.a_shared && other.a_descriptor != first.a_descriptor) ||
        other.b_descriptor != first.b_descriptor || other.accumulate != first.accumulate)
      fail("wgmma at %s:%u: descriptors or scale differ between threads", at.file, at.line);
}

}  // namespace

void issue_wgmma(const WgmmaOperands& operands, const WgmmaShape& shape, Location at) {
  const IgnoreRaces ignore;
  Worker& w = *worker;
  WarpGroup& group = own_group("wgmma");
  if (group.issuing == 0) {
    group.at = at;
    group.next.n = shape.n;
    group.next.a_shared = shape.a_shared;
    group.next.a_mn_major = shape.a_mn_major;
    group.next.b_mn_major = shape.b_mn_major;
  } else if (w.mode.strict_sites && !same(group.at, at)) {
    fail("divergent wgmma: some threads at %s:%u, thread %u at %s:%u", group.at.file, group.at.line,
         w.current->linear, at.file, at.line);
  }
  group.next.thread[w.current->linear & 127] = operands;
  if (!meet(group.issuing, "wgmma", at)) return;
  check_uniform(group.next, at);
  const bool at_once =
      w.mode.async == Async::eager || (w.mode.async == Async::random && (w.random() & 1));
  if (at_once && group.work.empty()) {
    run(group.next);  // in order: not before earlier ones
  } else {
    group.work.add(group.next);
  }
  wake_group();
}

void commit_wgmma() {
  const IgnoreRaces ignore;
  WarpGroup& group = own_group("wgmma.commit_group");
  if ((worker->current->linear & 127) == 0) group.work.commit();
}

void wait_wgmma(int most_pending, Location at) {
  const IgnoreRaces ignore;
  WarpGroup& group = own_group("wgmma.wait_group");
  // All meet, so that the first thread has committed and the results are there for all.
  if (!meet(group.waiting, "wgmma.wait_group", at)) return;
  while (int(group.work.pending()) > most_pending) group.work.finish_one(run);
  wake_group();
}

}  // namespace bdlm::emu
