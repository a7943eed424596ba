// SPDX-License-Identifier: Apache-2.0
// A signal that reaches one rank stops all of them at the same step.
#include <catch2/catch.hpp>

#include "trainer/signals.h"

using namespace bdlm;

TEST_CASE("ranks agree on a signal that one of them has received", "[test_signals]") {
  const auto world = mpi_world(std::make_shared<Traffic>());
  SignalHandlers handlers;
  CHECK_FALSE(handlers.agreed(*world));
  if (world->rank() == world->size() - 1) raise(SIGUSR1);
  CHECK(handlers.agreed(*world).signal == SIGUSR1);
  CHECK(static_cast<bool>(handlers.received()) == (world->rank() == world->size() - 1));
}
