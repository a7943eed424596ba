// SPDX-License-Identifier: Apache-2.0
// SIGTERM and SIGUSR1 (SLURM's warning) ask for a checkpoint and the end of the run. A handler only
// sets a flag; ranks agree on it between steps, since signals reach them at different times.
#pragma once

#include <signal.h>

#include <array>
#include <string>

#include "parallel/communicator.h"

namespace bdlm {

struct StopRequest {
  int signal = 0;  // 0: none
  explicit operator bool() const { return signal != 0; }
  std::string name() const;  // "SIGTERM"
};

/// Handles the signals as long as it lives; the handlers before it come back after. One at a time.
/// A second signal ends the process at once with 128 + its number; the same signal within a second
/// is taken for the first one, which launchers tend to deliver twice.
class SignalHandlers {
 public:
  SignalHandlers();
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

  /// What this process has been sent.
  StopRequest received() const;
  /// Collective: the same answer on every rank, a request if any rank has received one.
  StopRequest agreed(Communicator& world) const;

 private:
  static constexpr std::array<int, 2> signals_ = {SIGTERM, SIGUSR1};
  std::array<struct sigaction, signals_.size()> before_{};
};

}  // namespace bdlm
