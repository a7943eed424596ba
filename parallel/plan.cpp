// SPDX-License-Identifier: Apache-2.0
// Makes StepPlans: every layer's rows by owner, each query's keys in every rank's shard, the lists
// of what travels, and the rows whose logits are computed.
#include <algorithm>
#include <optional>

#include "kernels/error.h"
#include "parallel/deal.h"
#include "parallel/plan_balance.h"
#include "parallel/plan_shards.h"

namespace bdlm {
namespace {

/// What the plans of all ranks share.
struct Context {
  const Layout& layout;
  const PlanOptions& options;
  int ranks;
  const Balance* balance;  // null: not asked for
};

/// One layer of all ranks: rows by owner, and what the computed ones see.
struct LayerRows {
  Shards in, out;
  std::vector<Keys> keys;           // of out.all()
  std::vector<Reach> reach;         // of each rank's computed rows
  std::vector<std::size_t> shared;  // so many first rows of in.of(rank) are exchanged

  std::span<const Keys> keys_of(int rank) const {
    return std::span(keys).subspan(out.begin(rank), out.size(rank));
  }
  std::span<const std::int32_t> shared_of(int rank) const {
    return in.of(rank).first(shared[static_cast<std::size_t>(rank)]);
  }
};

std::size_t clean_rows(std::span<const std::int32_t> rows, std::int64_t tokens) {
  return static_cast<std::size_t>(std::lower_bound(rows.begin(), rows.end(), tokens) -
                                  rows.begin());
}

LayerRows layer_rows(const Context& context, const RowSet& in, const RowSet& out,
                     std::int64_t window, std::span<const std::int32_t> owner) {
  LayerRows rows{Shards(in, owner, context.ranks), Shards(out, owner, context.ranks), {}, {}, {}};
  rows.keys.reserve(rows.out.all().size());
  for (const std::int32_t row : rows.out.all()) {
    rows.keys.push_back(visible_keys(context.layout, row, window));
  }
  for (int rank = 0; rank < context.ranks; ++rank) {
    rows.reach.push_back(reach_of(rows.keys_of(rank)));
    const std::span<const std::int32_t> held = rows.in.of(rank);
    switch (context.options.sharding) {
      case Sharding::csbp:
        rows.shared.push_back(clean_rows(held, context.layout.tokens));
        break;
      case Sharding::cp:
        rows.shared.push_back(held.size());
        break;
      case Sharding::bp:
        rows.shared.push_back(0);
        break;
    }
  }
  return rows;
}

void add_part(std::vector<KeyPart>& parts, std::int64_t first, std::int64_t count,
              std::vector<Interval> visible) {
  KeyPart part{first, count, std::move(visible), 0};
  for (const Interval& keys : part.visible) part.pairs += keys.hi - keys.lo;
  if (part.pairs > 0) parts.push_back(std::move(part));
}

/// How queries read a buffer of key rows: its clean part and its corrupted part.
std::vector<KeyPart> parts_of(std::span<const Keys> queries, std::span<const std::int32_t> keys,
                              std::int64_t tokens) {
  const std::size_t clean = clean_rows(keys, tokens);
  std::vector<KeyPart> parts;
  add_part(parts, 0, static_cast<std::int64_t>(clean),
           locate(queries, &Keys::clean, keys.first(clean)));
  add_part(parts, static_cast<std::int64_t>(clean), static_cast<std::int64_t>(keys.size() - clean),
           locate(queries, &Keys::own, keys.subspan(clean)));
  return parts;
}

Peer plan_peer(const Context& context, const LayerRows& rows, int rank, int other) {
  const std::span<const std::int32_t> mine = rows.shared_of(rank), theirs = rows.shared_of(other);
  const bool exact = context.options.exchange == ExchangeKind::exact;
  Peer peer;
  peer.rank = other;
  peer.send =
      exact ? covered(mine, rows.reach[static_cast<std::size_t>(other)]) : all_places(mine.size());
  std::vector<std::int32_t> arriving(theirs.begin(), theirs.end());
  if (exact) {
    arriving = covered(theirs, rows.reach[static_cast<std::size_t>(rank)]);
    for (std::int32_t& place : arriving) place = theirs[static_cast<std::size_t>(place)];
  }
  peer.receive = static_cast<std::int64_t>(arriving.size());
  peer.parts = parts_of(rows.keys_of(rank), arriving, context.layout.tokens);
  return peer;
}

LayerPlan plan_layer(const Context& context, const LayerRows& rows, std::int64_t window, int rank) {
  const Layout& layout = context.layout;
  const std::span<const std::int32_t> in = rows.in.of(rank), out = rows.out.of(rank);
  LayerPlan plan;
  plan.window = window;
  plan.in.assign(in.begin(), in.end());
  plan.in_clean = static_cast<std::int64_t>(clean_rows(in, layout.tokens));
  plan.positions.reserve(in.size());
  for (const std::int32_t row : in) {
    const std::int32_t position = layout.position(row);
    plan.positions.push_back(static_cast<std::int32_t>(position - layout.block(position).document));
  }
  plan.out.reserve(out.size());
  plan.out_positions.reserve(out.size());
  Cursor place(in);
  for (const std::int32_t row : out) {
    plan.out.push_back(place.find(row));
    plan.out_positions.push_back(plan.positions[static_cast<std::size_t>(plan.out.back())]);
  }
  plan.out_is_in = out.size() == in.size();

  plan.own = parts_of(rows.keys_of(rank), in, layout.tokens);
  plan.shard_rows.assign(rows.shared.begin(), rows.shared.end());
  plan.shared_rows = plan.shard_rows[static_cast<std::size_t>(rank)];
  for (int step = 1; step < context.ranks; ++step) {
    plan.peers.push_back(plan_peer(context, rows, rank, (rank + step) % context.ranks));
  }
  return plan;
}

/// Rows whose logits are computed: those that predict, or all that a textbook head would see.
RowSet head_set(const Context& context, const RowSet& predicts, const RowSet& out) {
  if (context.options.elide.unscored_logits) return predicts;
  RowSet head = out;
  const auto clean_end = predicts.begin() + context.layout.tokens;
  if (std::find(predicts.begin(), clean_end, 1) == clean_end) {
    std::fill_n(head.begin(), context.layout.tokens, std::uint8_t{0});
  }
  return head;
}

void plan_head(StepPlan& plan, const RowSet& head) {
  const LayerPlan& last = plan.at(plan.layers() - 1);
  for (std::size_t i = 0; i < last.out.size(); ++i) {
    const std::int32_t row = last.in[static_cast<std::size_t>(last.out[i])];
    if (!head[static_cast<std::size_t>(row)]) continue;
    plan.head.push_back(static_cast<std::int32_t>(i));
    plan.head_rows.push_back(row);
  }
}

/// Plans of ranks [first, first + count): layers with the same rows and window are made once.
/// counted: rows that count in the balance term where they are computed; null without one.
std::vector<StepPlan> plan_ranks(const Context& context, const Levels& levels,
                                 std::span<const std::int64_t> windows,
                                 std::span<const std::int32_t> owner, const CountedRows* counted,
                                 int first, int count) {
  std::vector<StepPlan> plans(static_cast<std::size_t>(count));
  for (std::size_t layer = 0; layer < windows.size(); ++layer) {
    std::size_t alike = 0;
    while (windows[alike] != windows[layer] || levels.index[alike] != levels.index[layer] ||
           levels.index[alike + 1] != levels.index[layer + 1] ||
           (counted != nullptr && counted->index[alike] != counted->index[layer])) {
      ++alike;
    }
    if (alike < layer) {
      for (StepPlan& plan : plans) plan.layer.push_back(plan.layer[alike]);
      continue;
    }
    const LayerRows rows =
        layer_rows(context, levels.at(layer), levels.at(layer + 1), windows[layer], owner);
    for (int i = 0; i < count; ++i) {
      StepPlan& plan = plans[static_cast<std::size_t>(i)];
      plan.layer.push_back(static_cast<int>(plan.distinct.size()));
      plan.distinct.push_back(plan_layer(context, rows, windows[layer], first + i));
      if (counted != nullptr) count_in(plan.distinct.back(), *context.balance, *counted, layer);
    }
  }
  for (StepPlan& plan : plans) plan.tokens = context.layout.tokens;
  return plans;
}

/// bp: the rows of a rank that computes what its own scored rows reach, as if it were alone.
Levels levels_alone(const Context& context, const RowSet& predicts, const RowSet& forced,
                    std::span<const std::int64_t> windows, std::span<const std::int32_t> owner,
                    int rank) {
  RowSet head = predicts, kept = forced;
  for (std::size_t row = 0; row < head.size(); ++row) {
    const bool mine = owner[row] == rank;
    head[row] &= mine;
    if (static_cast<std::int64_t>(row) >= context.layout.tokens) kept[row] &= mine;
  }
  return make_levels(context.layout, windows, head, kept, context.options.elide.last_layer);
}

StepPlan plan_alone(const Context& context, const RowSet& predicts, const RowSet& forced,
                    std::span<const std::int64_t> windows, std::span<const std::int32_t> owner,
                    int rank) {
  const Levels levels = levels_alone(context, predicts, forced, windows, owner, rank);
  const std::vector<std::int32_t> everything(owner.size(), rank);
  std::optional<CountedRows> counted;
  if (context.balance != nullptr) {
    // Several ranks compute a clean row: it counts on the first of them.
    std::vector<Levels> before;
    for (int other = 0; other < rank; ++other)
      before.push_back(levels_alone(context, predicts, forced, windows, owner, other));
    counted = counted_rows(*context.balance, before);
  }
  StepPlan plan = std::move(plan_ranks(context, levels, windows, everything,
                                       counted ? &*counted : nullptr, rank, 1)
                                .front());
  RowSet logits = head_set(context, predicts, levels.at(levels.layers()));
  for (std::size_t row = 0; row < logits.size(); ++row) logits[row] &= owner[row] == rank;
  plan_head(plan, logits);
  return plan;
}

}  // namespace

std::int64_t LayerPlan::pairs() const {
  std::int64_t sum = 0;
  for (const KeyPart& part : own) sum += part.pairs;
  for (const Peer& peer : peers) {
    for (const KeyPart& part : peer.parts) sum += part.pairs;
  }
  return sum;
}

std::vector<StepPlan> make_plans(const BatchShape& batch, const LayerShapes& model,
                                 const PlanOptions& options, int ranks, int first, int count) {
  require(first >= 0 && count >= 0 && first + count <= ranks,
          "plans of ranks {} to {} were asked for, but the group has {}", first, first + count - 1,
          ranks);
  const Layout layout = make_layout(batch);
  const std::vector<std::int64_t> windows = effective_windows(layout, model);
  const RowSet predicts = predicting_rows(batch), forced = forced_rows(layout, options.elide);
  const Levels levels = make_levels(layout, windows, predicts, forced, options.elide.last_layer);
  const std::vector<std::int32_t> owner = owners_of(layout, levels, windows, model, options, ranks);
  std::optional<Balance> balance;
  if (model.balance) balance = make_balance(batch, layout, windows, predicts);
  const Context context{layout, options, ranks, balance ? &*balance : nullptr};

  std::vector<StepPlan> plans;
  if (options.sharding == Sharding::bp) {
    for (int rank = first; rank < first + count; ++rank) {
      plans.push_back(plan_alone(context, predicts, forced, windows, owner, rank));
    }
    return plans;
  }
  std::optional<CountedRows> counted;
  if (balance) counted = counted_rows(*balance, {});
  plans = plan_ranks(context, levels, windows, owner, counted ? &*counted : nullptr, first, count);
  const RowSet head = head_set(context, predicts, levels.at(levels.layers()));
  for (StepPlan& plan : plans) plan_head(plan, head);
  return plans;
}

}  // namespace bdlm
