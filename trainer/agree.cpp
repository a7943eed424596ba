// SPDX-License-Identifier: Apache-2.0
#include "trainer/agree.h"

#include <string>

#include "kernels/error.h"

namespace bdlm {

void agree(Communicator& world, const std::function<void()>& work) {
  std::string message;
  try {
    work();
  } catch (const Error& error) {
    message = error.what();
  }
  std::int64_t failed = message.empty() ? 0 : 1, first = failed ? world.rank() : world.size();
  world.all_reduce(std::span(&failed, 1), Reduce::sum);
  if (failed == 0) return;
  world.all_reduce(std::span(&first, 1), Reduce::min);
  world.broadcast(message, static_cast<int>(first));
  if (failed == world.size()) throw Error(message);
  fail("rank {}: {}", first, message);
}

}  // namespace bdlm
