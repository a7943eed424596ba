// SPDX-License-Identifier: Apache-2.0
// The watchdog's thread and message.
#include "parallel/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "parallel/mpi_group.h"

namespace bdlm {
namespace {

using Clock = std::chrono::steady_clock;

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

/// "rank 3", "ranks 0-2, 5": all but the one that waits.
std::string list_ranks(std::vector<int> ranks, int self) {
  std::erase(ranks, self);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());  // pieces of one message
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

}  // namespace

void Activity::begin(const char* name, Purpose purpose, const std::string& group,
                     std::int64_t sequence, std::int64_t bytes, std::span<const int> ranks) {
  const std::lock_guard lock(mutex_);
  Operation& slot = recent_[begun_++ % recent_.size()];
  slot.name = name;
  slot.purpose = purpose;
  slot.group = group;  // assignments reuse the slot's memory
  slot.sequence = sequence;
  slot.bytes = bytes;
  slot.ranks.assign(ranks.begin(), ranks.end());
  slot.since = Clock::now();
  waiting_ = true;
}

void Activity::end() {
  const std::lock_guard lock(mutex_);
  waiting_ = false;
}

Clock::time_point Activity::waiting_since() const {
  const std::lock_guard lock(mutex_);
  return waiting_ ? recent_[(begun_ - 1) % recent_.size()].since : Clock::time_point{};
}

Activity::Snapshot Activity::snapshot() const {
  const std::lock_guard lock(mutex_);
  Snapshot copy;
  copy.waiting = waiting_;
  const std::uint64_t kept = std::min<std::uint64_t>(begun_, recent_.size());
  for (std::uint64_t i = begun_ - kept; i < begun_; ++i) {
    copy.recent.push_back(recent_[i % recent_.size()]);
  }
  return copy;
}

std::string describe_stall(const Activity::Snapshot& stall, int rank, const std::string& host,
                           Clock::time_point now) {
  const Operation& last = stall.recent.back();
  const double seconds = std::chrono::duration<double>(now - last.since).count();
  std::string text = fmt::format(
      "rank {} on {} has waited {:.0f} s (fault.timeout) in {} of group {} ({}, operation {}, {} "
      "bytes) for {}: a rank that prints no such line, or one with another operation, has "
      "stopped or gone astray; look at its host and its last lines",
      rank, host, seconds, last.name, last.group, name_of(last.purpose), last.sequence, last.bytes,
      last.ranks.empty() ? "its device, perhaps in an operation of NCCL (the last ones follow) whose "
                           "other ranks have stopped"
                         : list_ranks(last.ranks, rank));
  if (stall.recent.size() > 1) {
    text += "; before it:";
    for (std::size_t i = 0; i + 1 < stall.recent.size(); ++i) {
      const Operation& done = stall.recent[i];
      text += fmt::format("{} {} {} {}", i == 0 ? "" : ",", done.group, done.sequence, done.name);
    }
  }
  return text;
}

Watchdog::Watchdog(std::shared_ptr<const Activity> activity, double timeout, int rank,
                   OnStall on_stall)
    : activity_(std::move(activity)) {
  if (timeout <= 0 || activity_ == nullptr) return;
  thread_ = std::thread([this, timeout, rank, call = std::move(on_stall)] {
    watch(std::chrono::duration<double>(timeout), rank, call);
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::watch(std::chrono::duration<double> timeout, int rank, const OnStall& on_stall) {
  const auto period = std::min(timeout / 4, std::chrono::duration<double>(1));
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, period, [this] { return stop_; })) {
    const auto since = activity_->waiting_since();
    if (since == Clock::time_point{} || Clock::now() - since < timeout) continue;
    const Activity::Snapshot stall = activity_->snapshot();
    if (!stall.waiting || stall.recent.back().since != since) continue;  // it has just moved on
    lock.unlock();
    on_stall(describe_stall(stall, rank, host_name(), Clock::now()));
    return;
  }
}

void Watchdog::end_job(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::fflush(nullptr);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  // Not the thread that MPI was initialised for, but that one hangs. If the library cannot even
  // abort, ending this process makes the launcher end the others.
  int running = 0;
  MPI_Initialized(&running);
  if (running != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace bdlm
