// SPDX-License-Identifier: Apache-2.0
#include "parallel/scattered_rows.h"

#include <algorithm>

#include "kernels/error.h"

namespace bdlm {
namespace {

Tensor flat(Tensor x) { return x.reshape(1, x.size()); }

}  // namespace

FlatRange scattered_share(std::int64_t rows, int rank, int ranks) {
  const std::int64_t begin = rows * rank / ranks;
  return {begin, rows * (rank + 1) / ranks - begin};
}

RowMove plan_move(std::span<const std::int32_t> picked, std::int64_t n, int rank, int ranks) {
  const auto count = static_cast<std::int64_t>(picked.size());
  // The run of `picked` whose rows a rank holds.
  const auto held_by = [&](int r) {
    const FlatRange rows = scattered_share(n, r, ranks);
    const auto begin = std::ranges::lower_bound(picked, rows.begin) - picked.begin();
    const auto end = std::ranges::lower_bound(picked, rows.begin + rows.count) - picked.begin();
    return FlatRange{begin, end - begin};
  };
  const auto common = [](FlatRange a, FlatRange b) {
    const std::int64_t begin = std::max(a.begin, b.begin);
    return FlatRange{begin, std::max<std::int64_t>(
                                0, std::min(a.begin + a.count, b.begin + b.count) - begin)};
  };
  const FlatRange here = held_by(rank), mine = scattered_share(count, rank, ranks);
  RowMove move;
  move.result = mine.count;
  const std::int64_t first = scattered_share(n, rank, ranks).begin;
  for (std::int64_t j = here.begin; j < here.begin + here.count; ++j)
    move.held.push_back(static_cast<std::int32_t>(picked[static_cast<std::size_t>(j)] - first));
  for (int r = 0; r < ranks; ++r) {
    const FlatRange out = common(here, scattered_share(count, r, ranks));
    const FlatRange in = common(held_by(r), mine);
    if (r == rank) {
      move.stay = out.count;
      move.stay_from = out.count > 0 ? out.begin - here.begin : 0;
      move.stay_to = out.count > 0 ? out.begin - mine.begin : 0;
      continue;
    }
    if (out.count > 0) move.sends.push_back({r, out.begin - here.begin, out.count});
    if (in.count > 0) move.receives.push_back({r, in.begin - mine.begin, in.count});
  }
  return move;
}

void ScatteredRows::gather(Tensor mine, Tensor all) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < ranks(); ++r)
    counts.push_back(scattered_share(all.rows, r, ranks()).count * all.cols);
  group_.all_gather(flat(mine), counts, flat(all), Purpose::tensor_rows);
}

void ScatteredRows::gather_equal(Tensor mine, Tensor all) {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks()), mine.size());
  group_.all_gather(flat(mine), counts, flat(all), Purpose::tensor_rows);
}

void ScatteredRows::reduce(Tensor partial, Tensor sum) {
  const FlatRange own = share(partial.rows);
  std::vector<Buffer> arrived(static_cast<std::size_t>(ranks()));
  std::vector<Message> receives, sends;
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank()) continue;
    Buffer& part = arrived[static_cast<std::size_t>(r)];
    part = device_.allocate(own.count, partial.cols, partial.dtype, Memory::workspace);
    receives.push_back(message_of(part, r));
    const FlatRange theirs = scattered_share(partial.rows, r, ranks());
    sends.push_back(message_of(partial.slice_rows(theirs.begin, theirs.count), r));
  }
  const auto transfer = group_.post(receives, sends, Purpose::tensor_rows);
  // A narrow sum must not be rounded after each part.
  const DType sums = accumulate_type(partial.dtype);
  Buffer wide;
  if (sum.dtype != sums) {
    wide = device_.allocate(own.count, partial.cols, sums, Memory::workspace);
    device_.zero(wide);
  }
  const Tensor total = wide ? wide.tensor() : sum;
  std::size_t next = 0;
  for (int r = 0; r < ranks(); ++r) {
    if (r != rank()) transfer->wait_receive(next++);
    device_.add(r == rank() ? partial.slice_rows(own.begin, own.count)
                            : arrived[static_cast<std::size_t>(r)].tensor(),
                total);
  }
  if (wide) device_.add(wide, sum);
  transfer->wait_all();
}

void ScatteredRows::pick(const RowMove& move, const DeviceList<std::int32_t>& held, Tensor x,
                         Tensor y) {
  if (alone()) {
    device_.gather_rows(x, held.data, y);
    return;
  }
  const Buffer rows = device_.allocate(held.count, x.cols, x.dtype, Memory::workspace);
  device_.gather_rows(x, held.data, rows);
  std::vector<Message> receives, sends;
  for (const RowMove::Run& run : move.receives)
    receives.push_back(message_of(y.slice_rows(run.first, run.count), run.peer));
  for (const RowMove::Run& run : move.sends)
    sends.push_back(message_of(rows.tensor().slice_rows(run.first, run.count), run.peer));
  const auto transfer = group_.post(receives, sends, Purpose::tensor_rows);
  device_.copy(rows.tensor().slice_rows(move.stay_from, move.stay),
               y.slice_rows(move.stay_to, move.stay));
  transfer->wait_all();
}

void ScatteredRows::pick_backward(const RowMove& move, const DeviceList<std::int32_t>& held,
                                  Tensor dy, Tensor dx) {
  if (alone()) {
    device_.scatter_add_rows(dy, held.data, dx);
    return;
  }
  const Buffer rows = device_.allocate(held.count, dy.cols, dy.dtype, Memory::workspace);
  std::vector<Message> receives, sends;
  for (const RowMove::Run& run : move.sends)
    receives.push_back(message_of(rows.tensor().slice_rows(run.first, run.count), run.peer));
  for (const RowMove::Run& run : move.receives)
    sends.push_back(message_of(dy.slice_rows(run.first, run.count), run.peer));
  const auto transfer = group_.post(receives, sends, Purpose::tensor_rows);
  device_.copy(dy.slice_rows(move.stay_to, move.stay),
               rows.tensor().slice_rows(move.stay_from, move.stay));
  transfer->wait_all();
  device_.scatter_add_rows(rows, held.data, dx);
}

}  // namespace bdlm
