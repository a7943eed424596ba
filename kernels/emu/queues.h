// SPDX-License-Identifier: Apache-2.0
// Streams of the emulated machine: queues whose operations run when a synchronisation asks for
// them, in an order that the events allow and Config::streams chooses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/emu/runtime_api.h"

namespace bdlm::emu {

/// waits: for something outside of this process, such as another rank; to be run again.
enum class Progress : std::uint8_t { done, waits };

/// std::function for what can only be moved.
struct Work {
  virtual ~Work() = default;
  virtual Progress run() = 0;
};

struct HostRange {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// The end of the first `ticket` operations of a stream, which an event stands for.
struct Point {
  std::shared_ptr<CUstream_st> stream;  // null: long reached
  std::uint64_t ticket = 0;
  double time = 0;  // seconds, when an event was recorded there
  int queries = 0;
  bool reached() const;
};

struct Operation {
  std::unique_ptr<Work> work;  // null for a wait or a record
  std::shared_ptr<Point> waits_for, records;
  HostRange host;  // host memory that it reads or writes
};

class Queues {
 public:
  cudaError_t create(cudaStream_t* stream, bool blocking, int device);
  cudaError_t destroy(cudaStream_t stream);
  bool known(cudaStream_t stream);  // or null

  /// `f` runs later; what it throws becomes the device's failure. Not for the null stream.
  template <class F>
  cudaError_t push(cudaStream_t stream, F&& f, HostRange host = {});
  /// For the null stream: `f` runs now, after all work of the device's blocking streams. Throws
  /// what `f` throws, and Error when the device has failed.
  template <class F>
  void run_now(F&& f);

  cudaError_t record(cudaStream_t stream, CUevent_st& event);
  std::shared_ptr<Point> point_of(const CUevent_st& event);  // null: never recorded
  cudaError_t wait(cudaStream_t stream, std::shared_ptr<Point> point);
  cudaError_t finish(cudaStream_t stream);
  cudaError_t finish(const std::shared_ptr<Point>& point, int device);
  cudaError_t finish_device(int device);
  cudaError_t query(cudaStream_t stream);
  cudaError_t query(const std::shared_ptr<Point>& point, int device);

  /// Runs an operation of any stream, as a device does by itself; false where none can be run.
  bool advance();
  /// Whether no stream of any device has anything to do.
  bool idle();
  /// Whether a queued copy reads or writes host memory in this range.
  bool uses(HostRange host);

  cudaError_t status(int device);  // success, or the failure that stays
  void fail_device(int device, const std::string& text);
  const char* last_failure();
  void reset();

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum class Patience : std::uint8_t { waits, gives_up };  // where an operation waits for others
  cudaError_t push_operation(cudaStream_t stream, Operation operation);
  void run_work_now(Work& work);
  std::shared_ptr<CUstream_st> find(cudaStream_t stream);
  void run_until(const Point& point, Patience patience, Lock& lock);
  void run_needed(const Point& point, Patience patience, Lock& lock);
  bool run_any(Lock& lock);
  Progress run_front(CUstream_st& stream, Lock& lock);
  void finish_streams(int device, bool blocking_only, Lock& lock);
  void after_push(const Point& point);
  cudaError_t query_point(Point& point, int& queries, int device);
  void fail_locked(int device, const std::string& text);
  cudaError_t status_locked(int device);
  std::uint64_t random();

  std::mutex execution_;  // held by the one host thread that runs operations; taken first
  std::mutex state_;      // of all that follows; not held while an operation runs
  std::vector<std::shared_ptr<CUstream_st>> streams_;
  std::map<int, const std::string*> failed_devices_;
  std::list<std::string> failures_;  // never shortened: cudaGetErrorString hands out pointers
  std::uint64_t random_state_ = 0;
};

Queues& queues();

/// Marks the host thread as running an operation: CUDA's host functions may not use the runtime.
class InsideOperation {
 public:
  InsideOperation();
  ~InsideOperation();
  InsideOperation(const InsideOperation&) = delete;
  InsideOperation& operator=(const InsideOperation&) = delete;
};
bool inside_operation();
double now();  // seconds
/// What cudaSetDevice chose for this host thread.
int& current_device();

template <class F>
struct WorkOf final : Work {
  F f;
  explicit WorkOf(F&& function) : f(std::move(function)) {}
  Progress run() override {
    if constexpr (std::is_same_v<decltype(f()), Progress>) return f();
    else return f(), Progress::done;
  }
};

template <class F>
cudaError_t Queues::push(cudaStream_t stream, F&& f, HostRange host) {
  Operation operation;
  operation.work = std::make_unique<WorkOf<std::remove_reference_t<F>>>(std::move(f));
  operation.host = host;
  return push_operation(stream, std::move(operation));
}

template <class F>
void Queues::run_now(F&& f) {
  WorkOf<std::remove_reference_t<F>> work(std::move(f));
  run_work_now(work);
}

}  // namespace bdlm::emu

struct CUstream_st {
  int device = 0;
  bool blocking = true, destroyed = false;
  std::deque<bdlm::emu::Operation> operations;
  std::uint64_t pushed = 0, completed = 0;
  int queries = 0;
};
struct CUevent_st {
  int device = 0;
  bool timing = true;
  std::shared_ptr<bdlm::emu::Point> recorded;
};
