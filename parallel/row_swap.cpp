// SPDX-License-Identifier: Apache-2.0
#include "parallel/row_swap.h"

#include <vector>

namespace bdlm {

void swap_rows(Device& device, Communicator& group, Tensor out, std::span<const std::int64_t> sends,
               Tensor in, std::span<const std::int64_t> receives, Purpose purpose) {
  std::vector<Message> incoming, outgoing;
  std::int64_t from = 0, to = 0;
  Tensor kept, place;  // what this rank sends to itself
  for (int r = 0; r < group.size(); ++r) {
    const Tensor there = out.slice_rows(from, sends[static_cast<std::size_t>(r)]);
    const Tensor here = in.slice_rows(to, receives[static_cast<std::size_t>(r)]);
    from += there.rows;
    to += here.rows;
    if (r == group.rank()) {
      kept = there;
      place = here;
      continue;
    }
    outgoing.push_back(message_of(there, r));
    incoming.push_back(message_of(here, r));
  }
  const auto transfer = group.post(incoming, outgoing, purpose);
  device.copy(kept, place);
  transfer->wait_all();
}

}  // namespace bdlm
