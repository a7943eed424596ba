// SPDX-License-Identifier: Apache-2.0
// Runtime functions about streams and events.
#include <memory>

#include "kernels/emu/queues.h"
#include "kernels/emu/runtime_calls.h"

using namespace bdlm::emu;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);  // priorities promise nothing
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (const cudaError_t error = device_status(current_device())) return result(error);
  if (!stream || flags > cudaStreamNonBlocking) return result(cudaErrorInvalidValue);
  return result(queues().create(stream, flags != cudaStreamNonBlocking, current_device()));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return result(queues().destroy(stream)); }

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = device_status(current_device())) return result(error);
  return result(queues().finish(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return result(queues().query(stream)); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!event) return result(cudaErrorInvalidResourceHandle);
  return result(queues().wait(stream, queues().point_of(*event)));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  if (!function) return result(cudaErrorInvalidValue);
  const auto call = [=] { function(argument); };
  if (stream) return result(queues().push(stream, call));
  if (const cudaError_t failed = queues().finish(stream)) return result(failed);
  queues().run_now(call);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = device_status(current_device())) return result(error);
  if (!event) return result(cudaErrorInvalidValue);
  auto made = std::make_unique<CUevent_st>();
  made->device = current_device();
  made->timing = !(flags & cudaEventDisableTiming);
  *event = made.release();
  return result(queues().status(current_device()));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return result(cudaErrorInvalidResourceHandle);
  delete event;
  return result(queues().status(current_device()));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!event) return result(cudaErrorInvalidResourceHandle);
  return result(queues().record(stream, *event));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!event) return result(cudaErrorInvalidResourceHandle);
  return result(queues().query(queues().point_of(*event), event->device));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!event) return result(cudaErrorInvalidResourceHandle);
  return result(queues().finish(queues().point_of(*event), event->device));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin || !end || !begin->timing || !end->timing)
    return result(cudaErrorInvalidResourceHandle);
  const auto first = queues().point_of(*begin), last = queues().point_of(*end);
  if (!first || !last) return result(cudaErrorInvalidResourceHandle);
  if (cudaEventQuery(begin) == cudaErrorNotReady || cudaEventQuery(end) == cudaErrorNotReady)
    return cudaErrorNotReady;
  *milliseconds = float((last->time - first->time) * 1e3);
  return result(queues().status(begin->device));
}
