// SPDX-License-Identifier: Apache-2.0
// Every rank runs the same cases. A rank stops at its first failure and ends the job with a
// non-zero status: the others may be waiting for it.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include "parallel/communicator.h"

int main(int argc, char** argv) {
  bdlm::MpiSession session(argc, argv);
  Catch::Session tests;
  tests.configData().abortAfter = 1;
  if (tests.run(argc, argv) != 0) session.abort(1);
  return 0;
}
