// SPDX-License-Identifier: Apache-2.0
// Every rank runs the same cases. A rank stops at its first failure and ends the job with a
// non-zero status: the others may be waiting for it.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "tests/mpi/place.h"

int main(int argc, char** argv) {
  bdlm::MpiSession session(argc, argv);
  if (const std::string why = bdlm::test::missing_device(); !why.empty()) {
    if (session.rank() == 0) std::printf("skipped: %s\n", why.c_str());
    return 77;  // CTest takes it for a skipped test
  }
  Catch::Session tests;
  tests.configData().abortAfter = 1;
  if (tests.run(argc, argv) != 0) session.abort(1);
  return 0;
}
