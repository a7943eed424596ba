// SPDX-License-Identifier: Apache-2.0
// Signals set a flag, a second one ends the process, handlers come and go. Agreement between ranks
// is in tests/mpi/test_signals.cpp.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "trainer/signals.h"

using namespace bdlm;

namespace {

/// The exit status of a process that does this, minus the signal if one has killed it.
int status_of(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("a signal is noted and the process goes on") {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    SignalHandlers handlers;
    CHECK_FALSE(handlers.received());
    raise(signal);
    CHECK(handlers.received().signal == signal);
    CHECK(handlers.received());
  }
  CHECK(StopRequest{SIGTERM}.name() == "SIGTERM");
  CHECK(StopRequest{SIGUSR1}.name() == "SIGUSR1");
}

TEST_CASE("handlers go with their object") {
  CHECK(status_of([] {
          signal(SIGTERM, SIG_DFL);  // Catch's own
          { SignalHandlers handlers; }
          raise(SIGTERM);
          return 0;
        }) == -SIGTERM);
}

TEST_CASE("another signal ends at once") {
  CHECK(status_of([] {
          SignalHandlers handlers;
          raise(SIGUSR1);
          raise(SIGTERM);
          return 0;
        }) == 128 + SIGTERM);
}

TEST_CASE("a launcher's double delivery is one signal, a later one is the second") {
  CHECK(status_of([] {
          SignalHandlers handlers;
          raise(SIGTERM);
          raise(SIGTERM);
          return 7;
        }) == 7);
  CHECK(status_of([] {
          SignalHandlers handlers;
          raise(SIGTERM);
          usleep(2'100'000);
          raise(SIGTERM);
          return 7;
        }) == 128 + SIGTERM);
}
