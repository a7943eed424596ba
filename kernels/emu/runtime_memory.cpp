// SPDX-License-Identifier: Apache-2.0
// Runtime functions about memory.
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "kernels/emu/config.h"
#include "kernels/emu/memory.h"
#include "kernels/emu/queues.h"
#include "kernels/emu/report.h"
#include "kernels/emu/runtime_calls.h"

namespace bdlm::emu {
namespace {

cudaError_t allocate(void** data, std::size_t bytes, Place place) {
  if (!data) return cudaErrorInvalidValue;
  if (const cudaError_t error = device_status(current_device())) return error;
  if (const cudaError_t failed = queues().status(current_device())) return failed;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  *data = memory().allocate(place, current_device(), bytes);
  return *data ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t free_now(void* data, Place place) {
  if (!data) return cudaSuccess;
  if (!memory().owns(place, data)) return cudaErrorInvalidValue;
  memory().give_back(data);
  memory().free(data);
  collect_if_idle();
  return queues().status(current_device());
}

/// Rows of bytes; one row for plain copies.
struct Rows {
  std::size_t width, height;
  std::size_t span(std::size_t pitch) const { return (height - 1) * pitch + width; }
};

void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               const Rows& rows) {
  for (std::size_t r = 0; r < rows.height; ++r)
    std::memmove(static_cast<char*>(to) + r * to_pitch,
                 static_cast<const char*>(from) + r * from_pitch, rows.width);
}

/// In a stream, or at once on the null stream.
template <class F>
cudaError_t submit(cudaStream_t stream, F&& f, HostRange host = {}) {
  if (stream) return queues().push(stream, std::move(f), host);
  if (const cudaError_t failed = queues().finish(stream)) return failed;
  try {
    queues().run_now(std::move(f));
  } catch (const Error&) {
    return queues().status(current_device()) ? cudaErrorLaunchFailure : cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

bool place_is_right(Place place, bool device, cudaMemcpyKind kind) {
  if (place == Place::invalid) return false;
  return kind == cudaMemcpyDefault || (place == Place::device) == device;
}

cudaError_t copy(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                 Rows rows, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t error = device_status(current_device())) return error;
  if (!queues().known(stream)) return cudaErrorInvalidResourceHandle;
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  if (rows.height > 1 && (to_pitch < rows.width || from_pitch < rows.width))
    return cudaErrorInvalidValue;
  const std::size_t to_bytes = rows.span(to_pitch), from_bytes = rows.span(from_pitch);
  const Place to_place = memory().place_of(to, to_bytes);
  const Place from_place = memory().place_of(from, from_bytes);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!to || !from || !place_is_right(to_place, to_device, kind) ||
      !place_is_right(from_place, from_device, kind))
    return cudaErrorInvalidValue;

  if (from_place == Place::pageable) {
    std::vector<char> staged(rows.width * rows.height);
    copy_rows(staged.data(), rows.width, from, from_pitch, rows);
    const cudaError_t status = submit(stream, [=, data = std::move(staged)] {
      require_live(to, to_bytes, "a copy");
      copy_rows(to, to_pitch, data.data(), rows.width, rows);
    });
    return status || to_place != Place::pageable ? status : queues().finish(stream);
  }
  HostRange host;
  if (from_place == Place::pinned) host = {from, from_bytes};
  if (to_place == Place::pinned) {
    host = {to, to_bytes};
    // What lies there is undefined until the copy is done; a host that reads too early shall see.
    if (stream && !queues().uses(host) && from_place == Place::device)
      for (std::size_t r = 0; r < rows.height; ++r)
        std::memset(static_cast<char*>(to) + r * to_pitch, 0xff, rows.width);
  }
  const cudaError_t status = submit(
      stream,
      [=] {
        require_live(to, to_bytes, "a copy");
        require_live(from, from_bytes, "a copy");
        copy_rows(to, to_pitch, from, from_pitch, rows);
      },
      host);
  return status || to_place != Place::pageable ? status : queues().finish(stream);
}

cudaError_t set(void* data, std::size_t pitch, int value, Rows rows, cudaStream_t stream) {
  if (const cudaError_t error = device_status(current_device())) return error;
  if (!queues().known(stream)) return cudaErrorInvalidResourceHandle;
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  const std::size_t bytes = rows.span(pitch);
  const Place place = memory().place_of(data, bytes);
  if (place == Place::pageable || place == Place::invalid) return cudaErrorInvalidValue;
  if (rows.height > 1 && pitch < rows.width) return cudaErrorInvalidValue;
  return submit(stream, [=] {
    require_live(data, bytes, "a memset");
    for (std::size_t r = 0; r < rows.height; ++r)
      std::memset(static_cast<char*>(data) + r * pitch, value, rows.width);
  });
}

}  // namespace

void collect_if_idle() {
  if (!queues().idle()) return;
  try {
    memory().collect();
  } catch (const Error& e) {
    queues().fail_device(current_device(), e.what());
  }
}

}  // namespace bdlm::emu

using namespace bdlm::emu;

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  if (const cudaError_t error = device_status(current_device())) return result(error);
  *total = config().memory;
  *free = *total - memory().used(current_device());
  return result(queues().status(current_device()));
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return result(allocate(data, bytes, Place::device));
}
cudaError_t cudaMallocManaged(void** data, std::size_t bytes, unsigned) {
  return result(allocate(data, bytes, Place::device));
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return result(allocate(data, bytes, Place::pinned));
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return result(allocate(data, bytes, Place::pinned));
}
cudaError_t cudaFree(void* data) { return result(free_now(data, Place::device)); }
cudaError_t cudaFreeHost(void* data) { return result(free_now(data, Place::pinned)); }

cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream) {
  if (!queues().known(stream)) return result(cudaErrorInvalidResourceHandle);
  const cudaError_t status = allocate(data, bytes, Place::device);
  if (status || !*data) return result(status);
  // Before its turn in the stream the memory is nobody's: what is written there is lost.
  return result(submit(stream, [p = *data, bytes] { std::memset(p, 0xff, bytes); }));
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  if (!queues().known(stream)) return result(cudaErrorInvalidResourceHandle);
  if (!data) return cudaSuccess;
  if (!memory().owns(Place::device, data)) return result(cudaErrorInvalidValue);
  memory().give_back(data);
  return result(submit(stream, [data] { memory().free(data); }));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return result(copy(to, bytes, from, bytes, {bytes, 1}, kind, stream));
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return result(copy(to, to_pitch, from, from_pitch, {width, height}, kind, stream));
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return result(copy(to, bytes, from, bytes, {bytes, 1}, kind, nullptr));
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return result(set(data, bytes, value, {bytes, 1}, stream));
}
cudaError_t cudaMemset2DAsync(void* data, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  return result(set(data, pitch, value, {width, height}, stream));
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return result(set(data, bytes, value, {bytes, 1}, nullptr));
}
