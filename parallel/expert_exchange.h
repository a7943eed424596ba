// SPDX-License-Identifier: Apache-2.0
// The way of token rows to their experts and back (dropless expert parallelism). A group of X ranks
// shares E experts, rank x holds [x E / X, (x + 1) E / X). Every (row, choice) pair travels once,
// in an all-to-all of as many rows as were chosen; nothing is padded or dropped. Ranks may hold
// different packed rows, and any number of rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "parallel/communicator.h"

namespace bdlm {

/// (row, choice) pairs that went to other ranks and came from them.
struct ExpertRows {
  std::int64_t sent = 0, received = 0;
};

/// Where the pairs of one layer and pass go: made once of the routers' choices, used in both
/// directions of both passes.
struct Dispatch {
  std::int64_t chosen = 0;            // k
  std::vector<std::int32_t> pairs;    // by (expert, pair): pair = row * k + choice
  std::vector<std::int32_t> rows;     // their rows
  std::vector<std::int32_t> places;   // the inverse of pairs
  std::vector<std::int64_t> sends, receives;  // pairs, by rank of the group
  std::vector<std::int32_t> by_expert;        // arrived (by rank, expert) -> by (expert, rank)
  std::vector<std::int32_t> by_rank;          // its inverse
  std::vector<std::int64_t> expert_rows;      // pairs of each expert here
  DeviceList<std::int32_t> pair_list, row_list, place_list, by_expert_list, by_rank_list;

  Dispatch() = default;
  Dispatch(Dispatch&&) = default;  // lists may be views of the vectors: moves keep their memory
  Dispatch& operator=(Dispatch&&) = default;
  std::int64_t held() const { return static_cast<std::int64_t>(by_expert.size()); }
};

class ExpertExchange {
 public:
  /// Both must outlive it.
  ExpertExchange(Device& device, Communicator& group, std::int64_t experts)
      : device_(device), group_(group), experts_(experts) {}

  // All are collective over the group.
  /// chosen [rows * k]: the experts of this rank's rows.
  Dispatch plan(std::span<const std::int32_t> chosen, std::int64_t k);
  /// x [pairs, n] in the order of dispatch.pairs -> what arrived here, by expert [held, n].
  Buffer send(const Dispatch& dispatch, Buffer x);
  /// y [held, n] by expert -> [pairs, n] in the order of dispatch.pairs.
  Buffer send_back(const Dispatch& dispatch, Buffer y);
  /// Pairs that travel in one direction. Not collective.
  ExpertRows elsewhere(const Dispatch& dispatch) const;

 private:
  Device& device_;
  Communicator& group_;
  std::int64_t experts_;
};

}  // namespace bdlm
