// SPDX-License-Identifier: Apache-2.0
// Ends a job in which a rank waits for others that will not answer (fault.timeout). The rank's
// communicators note in an Activity what they block in; the Watchdog's thread looks at it.
//
// What it can tell: the operation, its group and number, and for messages the very ranks whose
// messages are outstanding. What it cannot tell: which rank of a collective is missing, since MPI
// shows nobody's arrival. Every waiting rank prints its own message before the job ends, so the
// missing ones are those that print none, or that wait in an operation with another number.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "parallel/communicator.h"

namespace bdlm {

/// A blocking call of this rank.
struct Operation {
  const char* name = "";
  Purpose purpose = Purpose::control;
  std::string group;
  std::int64_t sequence = 0;  // collectives of the group so far: equal on its ranks if all is well
  std::int64_t bytes = 0;
  std::vector<int> ranks;  // of the world: those that it waits for
  std::chrono::steady_clock::time_point since;
};

/// The last operations of this rank, the newest perhaps still under way. Written by the rank's
/// thread, read by the watchdog's. Steady use allocates nothing.
class Activity {
 public:
  void begin(const char* name, Purpose purpose, const std::string& group, std::int64_t sequence,
             std::int64_t bytes, std::span<const int> ranks);
  void end();

  struct Snapshot {
    std::vector<Operation> recent;  // oldest first
    bool waiting = false;           // the last one has not ended
  };
  Snapshot snapshot() const;
  /// Since when this rank has been waiting; the zero time point: it is not.
  std::chrono::steady_clock::time_point waiting_since() const;

 private:
  mutable std::mutex mutex_;
  std::array<Operation, 8> recent_;
  std::uint64_t begun_ = 0;
  bool waiting_ = false;
};

/// One paragraph: who waits how long in what for whom, and what was done before.
std::string describe_stall(const Activity::Snapshot& stall, int rank, const std::string& host,
                           std::chrono::steady_clock::time_point now);

class Watchdog {
 public:
  using OnStall = std::function<void(const std::string& message)>;

  /// on_stall is called once, in the watchdog's thread, when an operation has lasted `timeout`
  /// seconds. The default prints the message, leaves other ranks two seconds for theirs, and ends
  /// the job. timeout <= 0: never.
  Watchdog(std::shared_ptr<const Activity> activity, double timeout, int rank,
           OnStall on_stall = end_job);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  static void end_job(const std::string& message);

 private:
  void watch(std::chrono::duration<double> timeout, int rank, const OnStall& on_stall);

  std::shared_ptr<const Activity> activity_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace bdlm
