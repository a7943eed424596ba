// SPDX-License-Identifier: Apache-2.0
// What is put into streams, and what asks for it. In which order it runs: queues_order.cpp.
#include "kernels/emu/queues.h"

#include <algorithm>

#include "kernels/emu/config.h"
#include "kernels/emu/report.h"

namespace bdlm::emu {

Queues& queues() {
  static Queues& q = *new Queues;  // other threads may use it while the process ends
  return q;
}

int& current_device() {
  static thread_local int device = 0;
  return device;
}

bool Point::reached() const { return !stream || stream->completed >= ticket; }

cudaError_t Queues::create(cudaStream_t* stream, bool blocking, int device) {
  const Lock lock(state_);
  auto made = std::make_shared<CUstream_st>();
  made->blocking = blocking;
  made->device = device;
  *stream = made.get();
  streams_.push_back(std::move(made));
  return status_locked(device);
}

cudaError_t Queues::destroy(cudaStream_t stream) {
  const Lock lock(state_);
  const auto found = find(stream);
  if (!found) return cudaErrorInvalidResourceHandle;
  found->destroyed = true;  // its work is still done
  if (found->operations.empty()) std::erase(streams_, found);
  return status_locked(found->device);
}

bool Queues::known(cudaStream_t stream) {
  const Lock lock(state_);
  return !stream || find(stream);
}

std::shared_ptr<CUstream_st> Queues::find(cudaStream_t stream) {
  for (const auto& s : streams_)
    if (s.get() == stream && !s->destroyed) return s;
  return nullptr;
}

cudaError_t Queues::push_operation(cudaStream_t stream, Operation operation) {
  Point end;
  {
    const Lock lock(state_);
    if (inside_operation()) return cudaErrorNotPermitted;
    end.stream = find(stream);
    if (!end.stream) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t failed = status_locked(end.stream->device)) return failed;
    end.ticket = ++end.stream->pushed;
    if (operation.records) {
      operation.records->stream = end.stream;
      operation.records->ticket = end.ticket;
    }
    end.stream->operations.push_back(std::move(operation));
  }
  after_push(end);
  return cudaSuccess;
}

void Queues::run_work_now(Work& work) {
  if (inside_operation()) throw Error("emulation: the CUDA runtime used by a host function");
  const Lock execution(execution_);
  {
    Lock lock(state_);
    finish_streams(current_device(), true, lock);
    if (status_locked(current_device())) throw Error(failures_.back());
  }
  const InsideOperation inside;
  work.run();
}

cudaError_t Queues::record(cudaStream_t stream, CUevent_st& event) {
  auto point = std::make_shared<Point>();
  cudaError_t status;
  if (!stream) {
    status = finish(stream);
    point->time = now();
  } else {
    Operation operation;
    operation.records = point;
    status = push_operation(stream, std::move(operation));
  }
  const Lock lock(state_);
  if (!status) event.recorded = std::move(point);
  return status;
}

std::shared_ptr<Point> Queues::point_of(const CUevent_st& event) {
  const Lock lock(state_);
  return event.recorded;
}

cudaError_t Queues::wait(cudaStream_t stream, std::shared_ptr<Point> point) {
  if (!point) return cudaSuccess;  // never recorded
  if (!stream) return finish(point, current_device());
  Operation operation;
  operation.waits_for = std::move(point);
  return push_operation(stream, std::move(operation));
}

cudaError_t Queues::finish(cudaStream_t stream) {
  if (inside_operation()) return cudaErrorNotPermitted;
  const Lock execution(execution_);
  Lock lock(state_);
  if (!stream) {
    finish_streams(current_device(), true, lock);
    return status_locked(current_device());
  }
  Point end;
  end.stream = find(stream);
  if (!end.stream) return cudaErrorInvalidResourceHandle;
  end.ticket = end.stream->pushed;
  run_until(end, Patience::waits, lock);
  return status_locked(end.stream->device);
}

cudaError_t Queues::finish(const std::shared_ptr<Point>& point, int device) {
  if (inside_operation()) return cudaErrorNotPermitted;
  const Lock execution(execution_);
  Lock lock(state_);
  if (point) run_until(*point, Patience::waits, lock);
  return status_locked(device);
}

cudaError_t Queues::finish_device(int device) {
  if (inside_operation()) return cudaErrorNotPermitted;
  const Lock execution(execution_);
  Lock lock(state_);
  finish_streams(device, false, lock);
  return status_locked(device);
}

cudaError_t Queues::query(cudaStream_t stream) {
  Point end;
  int* queries = nullptr;
  {
    const Lock lock(state_);
    if (!stream) {  // of the streams it stands for, the first that is not done
      for (const auto& s : streams_)
        if (s->blocking && s->device == current_device() && !s->operations.empty()) end.stream = s;
      if (!end.stream) return status_locked(current_device());
    } else {
      end.stream = find(stream);
      if (!end.stream) return cudaErrorInvalidResourceHandle;
    }
    end.ticket = end.stream->pushed;
    queries = &end.stream->queries;
  }
  return query_point(end, *queries, end.stream->device);
}

cudaError_t Queues::query(const std::shared_ptr<Point>& point, int device) {
  if (!point) return status(device);
  return query_point(*point, point->queries, device);
}

bool Queues::idle() {
  const Lock lock(state_);
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const auto& s) { return s->completed == s->pushed; });
}

bool Queues::uses(HostRange host) {
  const Lock lock(state_);
  const auto* begin = static_cast<const char*>(host.data);
  for (const auto& s : streams_)
    for (const Operation& o : s->operations) {
      const auto* other = static_cast<const char*>(o.host.data);
      if (other < begin + host.bytes && begin < other + o.host.bytes) return true;
    }
  return false;
}

cudaError_t Queues::status(int device) {
  const Lock lock(state_);
  return status_locked(device);
}

cudaError_t Queues::status_locked(int device) {
  return failed_devices_.count(device) ? cudaErrorLaunchFailure : cudaSuccess;
}

void Queues::fail_device(int device, const std::string& text) {
  const Lock lock(state_);
  fail_locked(device, text);
}

void Queues::fail_locked(int device, const std::string& text) {
  if (failed_devices_.count(device)) return;
  failures_.push_back(text);
  failed_devices_[device] = &failures_.back();
  for (const auto& s : streams_) {  // nothing more is done on it
    if (s->device != device) continue;
    s->operations.clear();
    s->completed = s->pushed;
  }
}

const char* Queues::last_failure() {
  const Lock lock(state_);
  return failed_devices_.empty() ? nullptr : failures_.back().c_str();
}

void Queues::reset() {
  const Lock execution(execution_);
  const Lock lock(state_);
  for (const auto& s : streams_) {
    s->operations.clear();
    s->completed = s->pushed;
  }
  streams_.clear();
  failed_devices_.clear();
  random_state_ = 0;
}

}  // namespace bdlm::emu
