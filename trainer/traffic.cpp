// SPDX-License-Identifier: Apache-2.0
#include "trainer/traffic.h"

#include "parallel/watchdog.h"

namespace bdlm {
std::shared_ptr<Traffic> watched_traffic() {
  auto traffic = std::make_shared<Traffic>();
  traffic->activity = std::make_shared<Activity>();
  return traffic;
}

bool keeps_remote_kv(const RunConfig& config) {
  if (config.parallel.plan.exchange == ExchangeKind::ring) return false;  // memory is its point
  switch (config.parallel.keep_remote_kv) {
    case KeepRemote::yes:
      return true;
    case KeepRemote::no:
      return false;
    case KeepRemote::automatic:
      break;
  }
  // Whoever keeps all activations can keep these too; whoever recomputes wants the memory.
  for (const Recompute mode : config.recompute)
    if (mode != Recompute::none) return false;
  return true;
}

ExchangePasses exchange_passes(const RunConfig& config, Recompute layer) {
  ExchangePasses passes;
  if (keeps_remote_kv(config)) return passes;
  // The ring holds two shards at a time: attending again and the gradients take a round each.
  const bool ring = config.parallel.plan.exchange == ExchangeKind::ring;
  passes.again = ring && layer == Recompute::full ? 2 : 1;
  return passes;
}

}  // namespace bdlm
