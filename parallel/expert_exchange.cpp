// SPDX-License-Identifier: Apache-2.0
#include "parallel/expert_exchange.h"

#include <cstring>
#include <numeric>
#include <string>

#include "kernels/error.h"
#include "parallel/row_swap.h"

namespace bdlm {
namespace {

template <class T>
DeviceList<T> upload(Device& device, const std::vector<T>& host) {
  return device.upload(std::span<const T>(host));
}

std::vector<std::int32_t> inverse(const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> places(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    places[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
  return places;
}

/// Everybody's counts: [ranks, experts].
std::vector<std::int64_t> counts_of_all(Communicator& group, const std::vector<std::int64_t>& mine) {
  if (group.size() == 1) return mine;
  const std::size_t bytes = mine.size() * sizeof(std::int64_t);
  std::string all;
  for (const std::string& theirs :
       group.gather(std::string(reinterpret_cast<const char*>(mine.data()), bytes), 0))
    all += theirs;
  group.broadcast(all, 0);
  std::vector<std::int64_t> counts(mine.size() * static_cast<std::size_t>(group.size()));
  require(all.size() == counts.size() * sizeof(std::int64_t),
          "counts of {} bytes from {} ranks of an expert group", all.size(), group.size());
  std::memcpy(counts.data(), all.data(), all.size());
  return counts;
}

}  // namespace

ExpertRows ExpertExchange::elsewhere(const Dispatch& d) const {
  const auto others = [&](const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) -
           counts[static_cast<std::size_t>(group_.rank())];
  };
  return {others(d.sends), others(d.receives)};
}

Dispatch ExpertExchange::plan(std::span<const std::int32_t> chosen, std::int64_t k) {
  const auto ranks = static_cast<std::size_t>(group_.size());
  const auto me = static_cast<std::size_t>(group_.rank());
  const auto all = static_cast<std::size_t>(experts_);
  require(chosen.size() <= INT32_MAX, "{} rows of {} choices are too many for one layer's pass: "
          "lower batch.micro_rows or raise parallel.csbp",
          chosen.size() / static_cast<std::size_t>(k), k);
  std::vector<std::int64_t> mine(all, 0);
  for (const std::int32_t expert : chosen) ++mine[static_cast<std::size_t>(expert)];
  const std::vector<std::int64_t> counts = counts_of_all(group_, mine);

  Dispatch d;
  d.chosen = k;
  std::vector<std::int64_t> next(all, 0);  // a counting sort by expert keeps the order of pairs
  for (std::size_t e = 1; e < all; ++e) next[e] = next[e - 1] + counts[me * all + e - 1];
  d.pairs.resize(chosen.size());
  d.rows.resize(chosen.size());
  for (std::size_t pair = 0; pair < chosen.size(); ++pair) {
    const auto place = static_cast<std::size_t>(next[static_cast<std::size_t>(chosen[pair])]++);
    d.pairs[place] = static_cast<std::int32_t>(pair);
    d.rows[place] = static_cast<std::int32_t>(static_cast<std::int64_t>(pair) / k);
  }
  d.places = inverse(d.pairs);

  const auto first_expert = [&](std::size_t rank) { return rank * all / ranks; };
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto of = [&](std::size_t from, std::size_t to) {
      const auto row = counts.begin() + static_cast<std::ptrdiff_t>(from * all);
      return std::accumulate(row + static_cast<std::ptrdiff_t>(first_expert(to)),
                             row + static_cast<std::ptrdiff_t>(first_expert(to + 1)),
                             std::int64_t{0});
    };
    d.sends.push_back(of(me, r));
    d.receives.push_back(of(r, me));
  }
  const std::size_t begin = first_expert(me), end = first_expert(me + 1);
  std::vector<std::int64_t> arrives(ranks * (end - begin));  // first arrived row by (rank, expert)
  std::int64_t at = 0;
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t e = begin; e < end; ++e) {
      arrives[r * (end - begin) + e - begin] = at;
      at += counts[r * all + e];
    }
  require(at <= INT32_MAX, "{} rows have been sent to the experts of one rank: lower "
          "batch.micro_rows or raise parallel.csbp or parallel.expert", at);
  for (std::size_t e = begin; e < end; ++e) {
    std::int64_t rows = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::int64_t first = arrives[r * (end - begin) + e - begin], n = counts[r * all + e];
      for (std::int64_t i = 0; i < n; ++i)
        d.by_expert.push_back(static_cast<std::int32_t>(first + i));
      rows += n;
    }
    d.expert_rows.push_back(rows);
  }
  d.by_rank = inverse(d.by_expert);
  d.pair_list = upload(device_, d.pairs);
  d.row_list = upload(device_, d.rows);
  d.place_list = upload(device_, d.places);
  if (ranks > 1) {
    d.by_expert_list = upload(device_, d.by_expert);
    d.by_rank_list = upload(device_, d.by_rank);
  }
  return d;
}

Buffer ExpertExchange::send(const Dispatch& d, Buffer x) {
  if (group_.size() == 1) return x;
  const Tensor out = x;
  const Buffer by_rank = device_.allocate(d.held(), out.cols, out.dtype, Memory::exchange);
  swap_rows(device_, group_, out, d.sends, by_rank, d.receives, Purpose::expert_rows);
  x.reset();
  Buffer arrived = device_.allocate(d.held(), out.cols, out.dtype, Memory::activations);
  device_.gather_rows(by_rank, d.by_expert_list.data, arrived);
  return arrived;
}

Buffer ExpertExchange::send_back(const Dispatch& d, Buffer y) {
  if (group_.size() == 1) return y;
  const Tensor out = y;
  const Buffer by_rank = device_.allocate(d.held(), out.cols, out.dtype, Memory::exchange);
  device_.gather_rows(out, d.by_rank_list.data, by_rank);
  y.reset();
  const auto pairs = static_cast<std::int64_t>(d.pairs.size());
  Buffer back = device_.allocate(pairs, out.cols, out.dtype, Memory::activations);
  swap_rows(device_, group_, by_rank, d.receives, back, d.sends, Purpose::expert_rows);
  return back;
}

}  // namespace bdlm
