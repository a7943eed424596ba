// SPDX-License-Identifier: Apache-2.0
// In which order queued operations run.
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "kernels/emu/config.h"
#include "kernels/emu/queues.h"

namespace bdlm::emu {
namespace {

// A lazy stream lets this many queries find it busy before it works.
constexpr int vain_queries = 2;
constexpr std::chrono::microseconds poll_interval{20};

thread_local bool inside = false;

bool blocked(const CUstream_st& stream) {
  const auto& waits_for = stream.operations.front().waits_for;
  return waits_for && !waits_for->reached();
}

}  // namespace

InsideOperation::InsideOperation() { inside = true; }
InsideOperation::~InsideOperation() { inside = false; }
bool inside_operation() { return inside; }

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::uint64_t Queues::random() {
  if (!random_state_) random_state_ = config().seed * 0x9E3779B97F4A7C15ull | 1;
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return random_state_;
}

Progress Queues::run_front(CUstream_st& stream, Lock& lock) {
  Operation operation = std::move(stream.operations.front());
  stream.operations.pop_front();
  std::string failure;
  if (operation.work) {
    Progress progress = Progress::done;
    lock.unlock();
    try {
      const InsideOperation mark;
      progress = operation.work->run();
    } catch (const std::exception& e) {
      failure = e.what();
    }
    if (progress == Progress::done) operation.work.reset();
    lock.lock();
    if (progress == Progress::waits) {
      if (!failed_devices_.count(stream.device))
        stream.operations.push_front(std::move(operation));
      return Progress::waits;
    }
  }
  ++stream.completed;
  if (operation.records) operation.records->time = now();
  if (!failure.empty()) fail_locked(stream.device, failure);
  return Progress::done;
}

/// Runs what `point` needs and nothing else, but while that waits for other ranks. Events point
/// backwards in time: no cycle can be.
void Queues::run_needed(const Point& point, Patience patience, Lock& lock) {
  std::vector<const Point*> needed{&point};
  std::vector<std::shared_ptr<Point>> kept;  // a failure drops the operations that own them
  while (!needed.empty()) {
    const Point& next = *needed.back();
    if (next.reached()) {
      needed.pop_back();
    } else if (blocked(*next.stream)) {
      kept.push_back(next.stream->operations.front().waits_for);
      needed.push_back(kept.back().get());
    } else if (run_front(*next.stream, lock) == Progress::waits) {
      if (patience == Patience::gives_up) return;
      if (run_any(lock)) continue;
      lock.unlock();
      std::this_thread::sleep_for(poll_interval);
      lock.lock();
    }
  }
}

/// Runs one operation of any stream that is not blocked; false when there is none.
bool Queues::run_any(Lock& lock) {
  std::vector<std::shared_ptr<CUstream_st>> ready;
  for (const auto& s : streams_)
    if (!s->operations.empty() && !blocked(*s)) ready.push_back(s);
  const std::size_t first = ready.empty() ? 0 : random() % ready.size();
  for (std::size_t i = 0; i < ready.size(); ++i) {
    CUstream_st& stream = *ready[(first + i) % ready.size()];
    // A failure on the way drops what was ready.
    if (!stream.operations.empty() && run_front(stream, lock) == Progress::done) return true;
  }
  return false;
}

bool Queues::advance() {
  const Lock execution(execution_, std::try_to_lock);
  if (!execution.owns_lock()) return false;
  Lock lock(state_);
  return run_any(lock);
}

void Queues::run_until(const Point& point, Patience patience, Lock& lock) {
  if (config().streams == Streams::random) {
    while (!point.reached() && run_any(lock)) {
    }
  }
  run_needed(point, patience, lock);
  std::erase_if(streams_, [](const auto& s) { return s->destroyed && s->operations.empty(); });
}

void Queues::finish_streams(int device, bool blocking_only, Lock& lock) {
  const auto streams = streams_;
  for (const auto& s : streams) {
    if (s->device != device || (blocking_only && !s->blocking)) continue;
    Point end;
    end.stream = s;
    end.ticket = s->pushed;
    run_until(end, Patience::waits, lock);
  }
}

void Queues::after_push(const Point& point) {
  const Streams mode = config().streams;
  if (mode == Streams::lazy) return;
  const Lock execution(execution_);
  Lock lock(state_);
  if (mode == Streams::eager) {
    run_until(point, Patience::gives_up, lock);
  } else {
    for (std::uint64_t count = random() % 3; count; --count) run_any(lock);
  }
}

cudaError_t Queues::query_point(Point& point, int& queries, int device) {
  if (inside_operation()) return cudaErrorNotPermitted;
  {
    const Lock lock(state_);
    if (point.reached()) return status_locked(device);
    if (config().streams == Streams::lazy && ++queries % (vain_queries + 1))
      return cudaErrorNotReady;
  }
  const Lock execution(execution_, std::try_to_lock);
  if (!execution.owns_lock()) return cudaErrorNotReady;  // another thread is at work
  Lock lock(state_);
  if (config().streams == Streams::random) {
    run_any(lock);
  } else {
    run_until(point, Patience::gives_up, lock);
  }
  return point.reached() ? status_locked(device) : cudaErrorNotReady;
}

}  // namespace bdlm::emu
