// SPDX-License-Identifier: Apache-2.0
// Rows shared out over the tensor group between the layers' products (sequence parallelism,
// Korthikanti et al., arXiv 2205.05198): of n rows rank t holds [n t / T, n (t + 1) / T). A
// column-split product needs all of them (gather), a row-split one gives every rank a partial sum of
// all (reduce). Each is the gradient of the other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "parallel/communicator.h"
#include "parallel/row_swap.h"
#include "parallel/zero.h"

namespace bdlm {

/// The slice of `rows` that a rank holds.
FlatRange scattered_share(std::int64_t rows, int rank, int ranks);

/// How `picked` of n scattered rows become scattered rows themselves: their slices differ, so some
/// move. Positions ascend, so what goes to a rank is a run of the picked rows that this one holds.
struct RowMove {
  struct Run {
    int peer = 0;
    std::int64_t first = 0, count = 0;  // send: of `held`; receive: rows of the result
  };
  std::vector<std::int32_t> held;  // picked rows held here: their places in this rank's slice
  std::vector<Run> sends, receives;
  std::int64_t stay_from = 0, stay_to = 0, stay = 0;  // a run of `held`, its place in the result
  std::int64_t result = 0;                            // rows of the result here
};
RowMove plan_move(std::span<const std::int32_t> picked, std::int64_t n, int rank, int ranks);

class ScatteredRows {
 public:
  /// Both must outlive it. A group of one: nothing is scattered and nothing copied.
  ScatteredRows(Device& device, Communicator& group) : device_(device), group_(group) {}
  int rank() const { return group_.rank(); }
  int ranks() const { return group_.size(); }
  bool alone() const { return group_.size() == 1; }
  FlatRange share(std::int64_t rows) const {
    return scattered_share(rows, group_.rank(), group_.size());
  }

  // All are collective over the group; matrices are contiguous.
  /// mine [share(n), cols] -> all [n, cols], any dtype.
  void gather(Tensor mine, Tensor all);
  /// mine [n, cols] -> all [T n, cols], one rank after another: what every rank knows of n rows.
  void gather_equal(Tensor mine, Tensor all);
  /// sum [share(n), cols] += the ranks' partial sums [n, cols], added in rank order in the accumulate
  /// dtype. They travel in partial's dtype.
  void reduce(Tensor partial, Tensor sum);
  /// Rows from every rank to every other: parallel/row_swap.h.
  void swap(Tensor out, std::span<const std::int64_t> sends, Tensor in,
            std::span<const std::int64_t> receives) {
    swap_rows(device_, group_, out, sends, in, receives, Purpose::tensor_rows);
  }
  /// x [share(n), cols] -> y [share(picked), cols]. `held` is move.held in device memory.
  void pick(const RowMove& move, const DeviceList<std::int32_t>& held, Tensor x, Tensor y);
  /// The gradient: dx += dy's rows at their places; dtypes as they are.
  void pick_backward(const RowMove& move, const DeviceList<std::int32_t>& held, Tensor dy,
                     Tensor dx);

 private:
  Device& device_;
  Communicator& group_;
};

}  // namespace bdlm
