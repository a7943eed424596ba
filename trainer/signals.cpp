// SPDX-License-Identifier: Apache-2.0
// Signal handlers and the ranks' agreement.
#include "trainer/signals.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <span>

namespace bdlm {
namespace {

// A handler has no argument of ours: these cannot belong to an object.
volatile sig_atomic_t received_signal = 0;
volatile sig_atomic_t received_second = 0;  // of the monotonic clock; wraps with sig_atomic_t

sig_atomic_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);  // async-signal-safe (POSIX)
  return static_cast<sig_atomic_t>(time.tv_sec);
}

extern "C" void on_signal(int signal) {
  if (received_signal == 0) {
    received_second = now();
    received_signal = signal;
    return;
  }
  if (signal == received_signal && now() - received_second <= 1) return;
  _exit(128 + signal);
}

}  // namespace

std::string StopRequest::name() const {
  if (signal == SIGTERM) return "SIGTERM";
  return signal == SIGUSR1 ? "SIGUSR1" : fmt::format("signal {}", signal);
}

SignalHandlers::SignalHandlers() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a write that is under way goes on
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals_.size(); ++i) sigaction(signals_[i], &action, &before_[i]);
}

SignalHandlers::~SignalHandlers() {
  for (std::size_t i = 0; i < signals_.size(); ++i) sigaction(signals_[i], &before_[i], nullptr);
}

StopRequest SignalHandlers::received() const { return {received_signal}; }

StopRequest SignalHandlers::agreed(Communicator& world) const {
  std::int64_t verdict = received_signal;
  world.all_reduce(std::span(&verdict, 1), Reduce::max);
  return {static_cast<int>(verdict)};
}

}  // namespace bdlm
