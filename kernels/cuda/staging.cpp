// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/staging.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace bdlm::cuda {
namespace {

constexpr std::size_t smallest = 4096;
constexpr std::size_t piece = std::size_t{8} << 20;  // large copies travel in pieces of this size

}  // namespace

Event::Event() {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}

Event::~Event() {
  if (event_) cudaEventDestroy(event_);
}

void Event::record(Stream stream) {
  check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
}

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  check_cuda(status, "cudaEventQuery");
  return true;
}

void Event::wait() const { check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

void Event::hold_back(Stream stream) const {
  check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

Staging::~Staging() {
  // The device is idle here (CudaDevice synchronises first), or broken: then nothing can be done.
  for (Pending& p : pending_) cudaFreeHost(p.block.data);
  for (auto& [bytes, blocks] : free_)
    for (void* data : blocks) cudaFreeHost(data);
}

Staging::Block Staging::acquire(std::size_t bytes) {
  reclaim();
  const std::size_t size = std::bit_ceil(std::max(bytes, smallest));
  std::vector<void*>& blocks = free_[size];
  Block block{nullptr, size};
  if (!blocks.empty()) {
    block.data = blocks.back();
    blocks.pop_back();
  } else {
    check_cuda(cudaMallocHost(&block.data, size), "cudaMallocHost");
  }
  return block;
}

void Staging::release(Block block) {
  if (block.data) free_[block.bytes].push_back(block.data);
}

void Staging::release_after(Block block, Stream stream) {
  if (events_.empty()) events_.emplace_back();
  Pending pending{std::move(events_.back()), block};
  events_.pop_back();
  pending.event.record(stream);
  pending_.push_back(std::move(pending));
}

void Staging::reclaim() {
  while (!pending_.empty() && pending_.front().event.done()) {
    release(pending_.front().block);
    events_.push_back(std::move(pending_.front().event));
    pending_.pop_front();
  }
}

void Staging::to_device(const void* host, void* device, std::size_t bytes, Stream stream) {
  for (std::size_t at = 0; at < bytes; at += piece) {
    const std::size_t count = std::min(piece, bytes - at);
    const Block block = acquire(count);
    std::memcpy(block.data, static_cast<const std::byte*>(host) + at, count);
    check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(device) + at, block.data, count,
                               cudaMemcpyHostToDevice, stream),
               "copy to the device");
    release_after(block, stream);
  }
}

void Staging::to_host(const void* device, void* host, std::size_t bytes, Stream stream) {
  // Two blocks in turn: one is filled by the device while the host empties the other.
  struct Flight {
    Block block;
    Event event;
    std::size_t at = 0, count = 0;
  };
  std::deque<Flight> flights;
  const auto land = [&] {
    Flight& f = flights.front();
    f.event.wait();
    std::memcpy(static_cast<std::byte*>(host) + f.at, f.block.data, f.count);
    release(f.block);
    flights.pop_front();
  };
  for (std::size_t at = 0; at < bytes; at += piece) {
    if (flights.size() == 2) land();
    Flight f{acquire(std::min(piece, bytes - at)), Event(), at, std::min(piece, bytes - at)};
    check_cuda(cudaMemcpyAsync(f.block.data, static_cast<const std::byte*>(device) + at, f.count,
                               cudaMemcpyDeviceToHost, stream),
               "copy to the host");
    f.event.record(stream);
    flights.push_back(std::move(f));
  }
  while (!flights.empty()) land();
}

}  // namespace bdlm::cuda
