// SPDX-License-Identifier: Apache-2.0
// Plans as text: a table of ranks, a picture of the deal, a matrix of readers.
#include "parallel/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/visibility.h"

namespace bdlm {
namespace {

std::string bytes_text(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 2, units[unit]);
}

/// What the table says of one rank, or of all.
struct Line {
  std::int64_t clean = 0, corrupted = 0;  // held: the first layer's input
  WorkCounts work;
  double cost = 0;
  std::int64_t rows_sent = 0, rows_received = 0;  // a forward pass, all layers
  ExchangeBytes bytes;
};

/// combine(total, value) of every column: sums, or the most over ranks.
template <class Combine>
void fold(Line& total, const Line& line, Combine combine) {
  const auto add = [&](auto& a, const auto& b) { a = combine(a, b); };
  add(total.clean, line.clean);
  add(total.corrupted, line.corrupted);
  add(total.work.layer_rows, line.work.layer_rows);
  add(total.work.pairs, line.work.pairs);
  add(total.work.head_rows, line.work.head_rows);
  add(total.cost, line.cost);
  add(total.rows_sent, line.rows_sent);
  add(total.rows_received, line.rows_received);
  add(total.bytes.forward_sent, line.bytes.forward_sent);
  add(total.bytes.forward_received, line.bytes.forward_received);
  add(total.bytes.gradient_sent, line.bytes.gradient_sent);
  add(total.bytes.gradient_received, line.bytes.gradient_received);
}

Line line_of(const StepPlan& plan, const LayerShapes& model, const PlanOptions& options, int rank,
             std::int64_t wire, std::int64_t sum) {
  Line line;
  const LayerPlan& first = plan.at(0);
  line.clean = first.in_clean;
  line.corrupted = static_cast<std::int64_t>(first.in.size()) - first.in_clean;
  line.work = count_work(plan);
  line.cost = model.row_cost * static_cast<double>(line.work.layer_rows) +
              model.pair_cost * static_cast<double>(line.work.pairs);
  line.bytes = exchange_bytes(plan, model, options, rank, wire, sum);
  const std::int64_t row = std::max<std::int64_t>(1, model.kv_width * wire);
  line.rows_sent = line.bytes.forward_sent / row;
  line.rows_received = line.bytes.forward_received / row;
  return line;
}

std::string line_text(const std::string& name, const Line& line, double mean) {
  return fmt::format("{:<5}{:>9}{:>10}{:>11}{:>15}{:>8}{:>7.3f}{:>10}{:>10}{:>12}{:>12}\n", name,
                     line.clean, line.corrupted, line.work.layer_rows, line.work.pairs,
                     line.work.head_rows, mean > 0 ? line.cost / mean : 0, line.rows_sent,
                     line.rows_received, bytes_text(line.bytes.forward_received),
                     bytes_text(line.bytes.gradient_received));
}

/// Whether block i is followed by another document's.
bool bar_after(const Layout& layout, std::size_t i) {
  return i + 1 < layout.blocks.size() && layout.blocks[i].document != layout.blocks[i + 1].document;
}

void end_line(std::string& text) {
  while (text.back() == ' ') text.pop_back();
  text += '\n';
}

constexpr std::int64_t page_columns = 100;

std::int64_t picture_width(const Layout& layout) {
  auto width = 8 + static_cast<std::int64_t>(layout.blocks.size()) * (2 + layout.views);
  for (std::size_t i = 0; i < layout.blocks.size(); ++i) width += bar_after(layout, i) ? 2 : 0;
  return width;
}

}  // namespace

std::string describe_ranks(std::span<const StepPlan> plans, const LayerShapes& model,
                           const PlanOptions& options, std::int64_t wire, std::int64_t sum) {
  std::vector<Line> lines;
  Line all, most;
  for (const StepPlan& plan : plans) {
    lines.push_back(line_of(plan, model, options, static_cast<int>(lines.size()), wire, sum));
    fold(all, lines.back(), [](auto a, auto b) { return a + b; });
    fold(most, lines.back(), [](auto a, auto b) { return std::max(a, b); });
  }
  const double mean = lines.empty() ? 0 : all.cost / static_cast<double>(lines.size());
  std::string text = fmt::format("{:<5}{:>9}{:>10}{:>11}{:>15}{:>8}{:>7}{:>10}{:>10}{:>12}{:>12}\n",
                                 "rank", "clean", "corrupted", "computed", "pairs", "logits",
                                 "cost", "sent", "received", "forward", "gradient");
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    text += line_text(fmt::format("{}", rank), lines[rank], mean);
  }
  return text + line_text("all", all, mean) + line_text("most", most, mean);
}

std::string draw_deal(std::span<const StepPlan> plans, const BatchShape& batch) {
  const Layout layout = make_layout(batch);
  std::string text = "block   ";
  for (std::size_t i = 0, first = 0; i < layout.blocks.size(); ++i) {  // counted in its document
    text += fmt::format("{:<{}} ", i - first, 1 + batch.views);
    if (!bar_after(layout, i)) continue;
    text += "| ";
    first = i + 1;
  }
  end_line(text);
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const std::vector<std::int32_t>& held = plans[rank].at(0).in;
    text += fmt::format("rank {:<3}", rank);
    for (std::size_t i = 0; i < layout.blocks.size(); ++i) {
      const Block& block = layout.blocks[i];
      for (std::int64_t copy = 0; copy <= batch.views; ++copy) {
        const std::int64_t start = copy * layout.tokens;
        const auto row = std::lower_bound(held.begin(), held.end(), start + block.begin);
        const bool any = row != held.end() && *row < start + block.end;
        text += !any ? '.' : copy == 0 ? 'C' : 'N';
      }
      text += bar_after(layout, i) ? " | " : " ";
    }
    end_line(text);
  }
  return text;
}

std::string draw_readers(std::span<const StepPlan> plans, std::int64_t layer) {
  std::string text = "reads from";
  for (std::size_t rank = 0; rank < plans.size(); ++rank) text += fmt::format("{:>9}", rank);
  text += '\n';
  for (std::size_t reader = 0; reader < plans.size(); ++reader) {
    std::vector<std::int64_t> rows(plans.size());
    for (const Peer& peer : plans[reader].at(layer).peers) {
      rows[static_cast<std::size_t>(peer.rank)] = peer.receive;
    }
    text += fmt::format("rank {:<5}", reader);
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      text += rank == reader ? fmt::format("{:>9}", "own") : fmt::format("{:>9}", rows[rank]);
    }
    text += '\n';
  }
  return text;
}

std::string describe_plan(std::span<const StepPlan> plans, const BatchShape& batch,
                          const LayerShapes& model, const PlanOptions& options, std::int64_t wire,
                          std::int64_t sum) {
  std::string text = describe_ranks(plans, model, options, wire, sum);
  if (picture_width(make_layout(batch)) <= page_columns) text += '\n' + draw_deal(plans, batch);
  const auto ranks = static_cast<std::int64_t>(plans.size());
  if (ranks > 1 && 10 + 9 * ranks <= page_columns && options.sharding != Sharding::bp) {
    text += '\n' + draw_readers(plans, 0);
  }
  return text;
}

}  // namespace bdlm
