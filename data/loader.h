// SPDX-License-Identifier: Apache-2.0
// Makes items ahead in a thread of its own, so that training does not wait for data.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <queue>
#include <stop_token>
#include <thread>
#include <utility>

namespace bdlm {

/// `Item`: what next() gives, in the order in which `make` made it: a micro-batch, or all of a
/// step's. `make` runs in the loader's thread only, must not call MPI or HDF5, and ends the stream
/// with nullopt. What it throws comes out of next(), after the items made before.
template <class Item>
class Loader {
 public:
  /// At most `ahead` (at least 1) items wait.
  Loader(std::function<std::optional<Item>()> make, std::size_t ahead)
      : make_(std::move(make)),
        ahead_(std::max<std::size_t>(ahead, 1)),
        thread_([this](std::stop_token stop) { work(stop); }) {}

  /// Waits for the next item; nullopt at the end of the stream, and for ever after.
  std::optional<Item> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !items_.empty() || ended_; });
    if (items_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    Item item = std::move(items_.front());
    items_.pop();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

 private:
  void work(std::stop_token stop) {
    try {
      while (!stop.stop_requested()) {
        std::optional<Item> item = make_();
        std::unique_lock lock(mutex_);
        if (!item) break;
        items_.push(std::move(*item));
        changed_.notify_all();
        changed_.wait(lock, stop, [this] { return items_.size() < ahead_; });
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  std::function<std::optional<Item>()> make_;
  std::size_t ahead_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::queue<Item> items_;
  std::exception_ptr error_;
  bool ended_ = false;
  std::jthread thread_;  // last: it is stopped and joined before what it uses goes
};

}  // namespace bdlm
