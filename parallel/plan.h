// SPDX-License-Identifier: Apache-2.0
// The plan of a micro-batch: who computes which row of which layer, who reads whom, what travels.
// Known on the host before anything is computed, from metadata that every rank has; a pure function
// of its arguments, so nothing is sent to agree on it. Layers follow it and know no rank numbers.
//
// Row ids: copy * T + position (copy 0 clean, copy 1 + v corrupted view v).
// A layer reads its input rows `in` and computes its output rows `out`, a subset: the reader set
// (docs/csbp.md). Every row sees its own key, so keys and values are computed for all of `in`.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/attention.h"

namespace bdlm {

enum class Sharding : std::uint8_t { csbp, bp, cp };
enum class DealKind : std::uint8_t { balanced, head_tail, contiguous, round_robin };
enum class ExchangeKind : std::uint8_t { exact, allgather, ring };

/// Which work without a reader is left out (1-objective 1.4). All true is the product; all false
/// is the textbook computation that it is compared with.
struct Elide {
  bool second_clean = true;     // complementary views share one clean copy (see data/row.h: join)
  bool unscored_blocks = true;  // corrupted rows that nothing scored reaches
  bool last_layer = true;       // the last layer's rows that predict nothing
  bool unreached_clean = true;  // clean rows that nothing scored reaches
  bool unscored_logits = true;  // logits of rows without a target
};

/// What the plan must know of a micro-batch; no token is looked at.
struct BatchShape {
  std::span<const std::int64_t> documents;  // lengths
  std::int64_t views = 1;
  std::int64_t block_size = 1;
  bool causal_clean = false;  // clean rows read [0, i + 1) instead of their block's end
  std::span<const std::uint8_t> predicts;  // [(1 + views) * T]: the row has a target
  std::span<const std::int64_t> packed = {};  // tokens of each packed row; for LayerShapes::balance
};

/// What the plan must know of the model.
struct LayerShapes {
  std::vector<std::int64_t> windows;  // a layer each; 0: full attention
  std::int64_t kv_width = 0;          // 2 * kv_heads * head_dim: elements of one key/value row
  double row_cost = 1;                // FLOPs of a row in a layer without its attention
  double pair_cost = 1;               // FLOPs of one visible (query, key) pair, all heads
  bool balance = false;               // LayerPlan::packed and readers are wanted
};

struct PlanOptions {
  Sharding sharding = Sharding::csbp;
  DealKind deal = DealKind::balanced;
  ExchangeKind exchange = ExchangeKind::exact;
  Elide elide;
};

/// Keys that this rank's queries read: a contiguous part of somebody's key rows.
struct KeyPart {
  std::int64_t first = 0, count = 0;  // rows of the key buffer (own: `in`; remote: what arrived)
  std::vector<Interval> visible;      // one for each row of `out`, relative to `first`
  std::int64_t pairs = 0;             // sum of the intervals' lengths
};

/// Another rank of the csbp group, seen from this one.
struct Peer {
  int rank = 0;
  std::vector<std::int32_t> send;  // positions in `in` of the key rows that it is sent, ascending
  std::int64_t receive = 0;    // key rows that arrive from it (exact: those read; else its shard)
  std::vector<KeyPart> parts;  // how this rank's queries read what arrives, clean rows first,
                               // corrupted ones (cp) after them; no empty ones
};

struct LayerPlan {
  std::int64_t window = 0;                  // 0: full, also where no document outgrows the window
  std::vector<std::int32_t> in;             // row ids, ascending: clean rows first
  std::int64_t in_clean = 0;                // so many of them are clean
  std::vector<std::int32_t> positions;      // of `in`, in their documents
  std::vector<std::int32_t> out;            // positions in `in`, ascending
  std::vector<std::int32_t> out_positions;  // `positions` of the rows of `out`
  bool out_is_in = false;                   // the usual middle layer: no row drops out
  /// Balance term of a mixture (1-objective 1.4): the packed row in whose mean a row of `out` counts
  /// here, -1 for none, so that every row with a reader counts on one rank. Empty: not asked for.
  std::vector<std::int32_t> packed;
  std::vector<std::int64_t> readers;  // of each packed row: its rows that count, on all ranks
  std::vector<KeyPart> own;                 // own clean part, own corrupted part; no empty ones
  std::vector<Peer> peers;                  // rank + 1, rank + 2, ... (mod P); all P - 1 of them
  /// Ring: key rows of every rank's shard (by rank), since every shard passes through, from rank to
  /// rank + 1. A shard's gradient sum sets out from its first reader: both make P - 1 hops.
  std::vector<std::int64_t> shard_rows;
  /// First of the rows of `in` that are exchanged, and how many: the clean rows under csbp, all
  /// under cp, none under bp. Sent lists index into `in`, not into this range.
  std::int64_t shared_rows = 0;

  std::int64_t pairs() const;  // visible pairs that this rank computes
};

/// One rank's plan of one micro-batch.
struct StepPlan {
  std::int64_t tokens = 0;              // T
  std::vector<LayerPlan> distinct;      // most layers are alike
  std::vector<int> layer;               // layer -> index into distinct
  std::vector<std::int32_t> head;       // positions in the last layer's `out` (ascending) of the
                                        // rows whose logits are computed
  std::vector<std::int32_t> head_rows;  // their row ids

  const LayerPlan& at(std::int64_t l) const {
    return distinct[static_cast<std::size_t>(layer[static_cast<std::size_t>(l)])];
  }
  std::int64_t layers() const { return static_cast<std::int64_t>(layer.size()); }
};

/// Owner in the csbp group of every row id that is computed, -1 for the others. Under bp the owner
/// of a clean row is the rank that scores it; everybody who reads it computes it.
std::vector<std::int32_t> deal_rows(const BatchShape& batch, const LayerShapes& model,
                                    const PlanOptions& options, int ranks);

/// Plans of the ranks [first, first + count) of a group of `ranks`.
std::vector<StepPlan> make_plans(const BatchShape& batch, const LayerShapes& model,
                                 const PlanOptions& options, int ranks, int first, int count);
inline StepPlan make_plan(const BatchShape& batch, const LayerShapes& model,
                          const PlanOptions& options, int ranks, int rank) {
  return std::move(make_plans(batch, model, options, ranks, rank, 1).front());
}

/// Rows of all layers and copies with a reader: [layer][row id], the truth that plans are made of.
std::vector<std::vector<std::uint8_t>> reader_sets(const BatchShape& batch,
                                                   const LayerShapes& model, const Elide& elide);

/// Bytes that one rank sends and receives for one micro-batch's key/value exchange.
struct ExchangeBytes {
  std::int64_t forward_sent = 0, forward_received = 0;    // one pass over the layers' keys, values
  std::int64_t gradient_sent = 0, gradient_received = 0;  // their gradients, back to the owners
};
/// `wire` bytes an element of keys and values and their gradients; the ring carries gradient sums
/// in `sum` bytes an element.
ExchangeBytes exchange_bytes(const StepPlan& plan, const LayerShapes& model,
                             const PlanOptions& options, int rank, std::int64_t wire,
                             std::int64_t sum);

/// Useful work of one rank: 1-objective 1.4, 4-interfaces 4.4.
struct WorkCounts {
  std::int64_t layer_rows = 0;  // rows of `out`, summed over layers
  std::int64_t key_rows = 0;    // rows of `in`, summed over layers
  std::int64_t pairs = 0;       // visible pairs, summed over layers
  std::int64_t head_rows = 0;
};
WorkCounts count_work(const StepPlan& plan);

}  // namespace bdlm
