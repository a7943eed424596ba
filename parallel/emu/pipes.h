// SPDX-License-Identifier: Apache-2.0
// Pipes from every process of a group to every one, itself included, in shared memory. Nothing here
// waits: what cannot be done yet is tried again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace bdlm::emu {

class Pipes {
 public:
  /// `path` of shared memory ("/name") that one of the processes has made. Throws Error.
  Pipes(const std::string& path, int ranks, int rank);
  ~Pipes();
  Pipes(const Pipes&) = delete;
  Pipes& operator=(const Pipes&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// As much of the bytes as has room or has arrived; how many.
  std::size_t write(int to, const void* data, std::size_t bytes);
  std::size_t read(int from, void* data, std::size_t bytes);
  /// Bytes written to `to` so far, and how many of them it has read.
  std::uint64_t written(int to) const;
  std::uint64_t fetched(int to) const;

  /// Nobody may answer any more: whoever waits gives up.
  std::atomic<bool> given_up = false;

  /// An empty one under a name of its own.
  static std::string make();

 private:
  struct Pipe;
  Pipe& pipe(int from, int to) const;

  int ranks_, rank_;
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
};

}  // namespace bdlm::emu
