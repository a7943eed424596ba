// SPDX-License-Identifier: Apache-2.0
// The key/value exchange of a layer over the csbp group, in the three transports of docs/csbp.md
// behind one sequence of calls: begin, (own work), next until it is empty, end. Other ranks' shards
// arrive in a fixed order, so results do not depend on timing.
//
// Forward:   begin(plan, kv); while (shard = next()) attend(shard->kv);
// Backward:  begin(plan, kv) or resume(plan, kept); begin_gradients();
//            while (shard = next()) { ... add into shard->gradient ...; give_back(*shard); }
//            end_gradients(dkv);
#pragma once

#include <memory>
#include <optional>

#include "kernels/device.h"
#include "parallel/communicator.h"
#include "parallel/plan.h"

namespace bdlm {

/// What other ranks have sent in the forward pass, kept for the backward (keep_remote_kv).
struct KeptShards {
  std::vector<Buffer> kv;  // in the order of LayerPlan::peers
};

struct Shard {
  const Peer* peer = nullptr;  // peer->parts say who reads what
  Tensor kv;                   // [peer->receive, kv_width] compute dtype
  Tensor gradient;             // the same shape, accumulate dtype; only between begin_gradients and
                               // give_back; add to it
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Collective. kv [rows of plan.in, kv_width]; posts what others need of it and returns at once.
  /// kv must stay unchanged until next() has returned empty, plan until the pass has ended.
  virtual void begin(const LayerPlan& plan, Tensor kv, Purpose purpose) = 0;
  /// Instead of begin in the backward pass: shards come from memory, nothing is sent.
  virtual void resume(const LayerPlan& plan, KeptShards kept) = 0;

  /// The next shard with rows, in a fixed order; waits for it. Empty after the last one.
  virtual std::optional<Shard> next() = 0;
  /// Lets transfers move on between pieces of computation.
  virtual void progress() = 0;
  /// The shards of the pass that has just ended, to resume from; dropping them frees their memory
  /// (else the next begin does). Ring keeps none: empty.
  virtual KeptShards keep() = 0;
  /// Whether keep() gives something to resume from.
  virtual bool keeps() const = 0;

  // Gradients of keys and values go back to their owners. Wire dtype: compute; the owner adds in
  // the accumulate dtype, in rank order. Ring: the sum travels with the shard, in the accumulate
  // dtype and in ring order. Counted as Purpose::exchange_gradient.
  virtual void begin_gradients() = 0;
  /// Every shard that next() has returned is given back before the next one is asked for.
  virtual void give_back(const Shard& shard) = 0;
  /// dkv [rows of plan.in, kv_width], accumulate dtype, += what the other ranks have given back.
  virtual void end_gradients(Tensor dkv) = 0;
};

/// device and group must outlive it. One exchange serves all layers, one after another.
std::unique_ptr<Exchange> make_exchange(ExchangeKind kind, Device& device, Communicator& group,
                                        std::int64_t kv_width, DType compute);

}  // namespace bdlm
