// SPDX-License-Identifier: Apache-2.0
// A world of threads of which one runs at a time: ranks of a collective program in one process,
// for libraries that know no threads. Host values only.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/communicator.h"

namespace bdlm::test {

class LockstepWorld {
 public:
  explicit LockstepWorld(int ranks) : ranks_(ranks) {}
  int ranks() const { return ranks_; }

  /// Runs program(world) as every rank; throws what the first of them threw.
  void run(const std::function<void(Communicator&)>& program);

 private:
  friend class LockstepGroup;
  /// Everybody's bytes, by rank. The caller holds the token; others run while it waits.
  std::vector<std::string> exchange(int rank, const std::string& bytes) {
    std::unique_lock lock(token_, std::adopt_lock);
    given_.resize(static_cast<std::size_t>(ranks_));
    given_[static_cast<std::size_t>(rank)] = bytes;
    const int round = round_;
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      taken_ = given_;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round; });
    }
    std::vector<std::string> all = taken_;
    lock.release();  // the caller still holds it
    return all;
  }

  int ranks_;
  std::mutex token_;
  std::condition_variable changed_;
  int arrived_ = 0, round_ = 0;
  std::vector<std::string> given_, taken_;
};

class LockstepGroup final : public Communicator {
 public:
  LockstepGroup(LockstepWorld& world, int rank) : world_(world), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return world_.ranks(); }
  std::unique_ptr<Transfer> post(std::span<const Message>, std::span<const Message>,
                                 Purpose) override {
    fail("threads in lockstep exchange host values only");
  }
  std::unique_ptr<Transfer> start_reduce_scatter(Tensor, std::span<const std::int64_t>, Tensor,
                                                 Purpose) override {
    fail("threads in lockstep exchange host values only");
  }
  std::unique_ptr<Transfer> start_all_gather(Tensor, std::span<const std::int64_t>, Tensor,
                                             Purpose) override {
    fail("threads in lockstep exchange host values only");
  }
  void all_reduce(std::span<double> values, Reduce op) override { reduce(values, op); }
  void all_reduce(std::span<std::int64_t> values, Reduce op) override { reduce(values, op); }
  void broadcast(std::string& bytes, int root) override {
    bytes = world_.exchange(rank_, bytes)[static_cast<std::size_t>(root)];
  }
  std::vector<std::string> gather(const std::string& bytes, int root) override {
    auto all = world_.exchange(rank_, bytes);
    return rank_ == root ? all : std::vector<std::string>{};
  }
  void barrier() override { world_.exchange(rank_, {}); }

 private:
  template <class T>
  void reduce(std::span<T> values, Reduce op) {
    const std::string mine(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    const auto all = world_.exchange(rank_, mine);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const T* other = reinterpret_cast<const T*>(all[rank].data());
      for (std::size_t i = 0; i < values.size(); ++i) {
        T& value = values[i];
        if (rank == 0)
          value = other[i];
        else if (op == Reduce::sum)
          value += other[i];
        else
          value = op == Reduce::max ? std::max(value, other[i]) : std::min(value, other[i]);
      }
    }
  }

  LockstepWorld& world_;
  int rank_;
};

inline void LockstepWorld::run(const std::function<void(Communicator&)>& program) {
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks_; ++rank) {
    threads.emplace_back([&, rank] {
      const std::lock_guard token(token_);
      LockstepGroup group(*this, rank);
      try {
        program(group);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace bdlm::test
