// SPDX-License-Identifier: Apache-2.0
// Pinned host memory through which host values travel to and from the device. Blocks are kept and
// used again once the copy that read them is done, so a steady step pins nothing.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/runtime.h"

namespace bdlm::cuda {

/// A point in a stream. Waiting is the device's (Stream waits) or the host's.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  Event& operator=(Event&&) = delete;

  void record(Stream stream);
  bool done() const;
  void wait() const;                   // the host
  void hold_back(Stream stream) const; // what is enqueued on `stream` from now on waits

 private:
  cudaEvent_t event_ = nullptr;
};

class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;  // of the block, at least what was asked for
  };
  /// Not initialised; freely usable until it is given back.
  Block acquire(std::size_t bytes);
  void release(Block block);
  /// Given back when everything enqueued on `stream` so far is done.
  void release_after(Block block, Stream stream);

  /// The host does not wait; `host` may change at once.
  void to_device(const void* host, void* device, std::size_t bytes, Stream stream);
  /// Waits for the copy.
  void to_host(const void* device, void* host, std::size_t bytes, Stream stream);

 private:
  struct Pending {
    Event event;
    Block block;
  };
  void reclaim();

  std::map<std::size_t, std::vector<void*>> free_;
  std::deque<Pending> pending_;  // in the order of one stream each; oldest first
  std::vector<Event> events_;    // to be used again
};

}  // namespace bdlm::cuda
