// SPDX-License-Identifier: Apache-2.0
// A group on NCCL: its collectives, and what they and messages share. Everything is enqueued on the
// group's stream and nothing blocks the host: order with the computation is kept by events. Ranks
// issue operations in the order of the plan, which is the same on all of them.
#pragma once

#ifdef BDLM_EMU
#include "parallel/emu/nccl.h"
#else
#include <nccl.h>
#endif

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "kernels/error.h"
#include "parallel/cuda/device_group.h"
#include "parallel/watchdog.h"

namespace bdlm::cuda {

class NcclTransfer;

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(std::unique_ptr<Communicator> host, std::shared_ptr<CudaDevice> device,
            std::shared_ptr<Traffic> traffic, std::string name)
      : DeviceGroup(std::move(host), std::move(device)),
        traffic_(std::move(traffic)),
        name_(std::move(name)),
        exceptions_(std::uncaught_exceptions()) {
    ncclUniqueId id = {};
    std::string bytes;
    if (rank() == 0) {
      check(ncclGetUniqueId(&id), "ncclGetUniqueId");
      bytes.assign(id.internal, sizeof id.internal);
    }
    broadcast(bytes, 0);
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    check(ncclCommInitRank(&comm_, size(), id, rank()), "ncclCommInitRank");
  }

  ~NcclGroup() override {
    // While an exception is in flight other ranks may not answer any more.
    if (std::uncaught_exceptions() > exceptions_) {
      ncclCommAbort(comm_);
      return;
    }
    cudaStreamSynchronize(stream_);
    ncclCommDestroy(comm_);
  }

  std::unique_ptr<Transfer> post(std::span<const Message> receives, std::span<const Message> sends,
                                 Purpose purpose) override {
    return exchange(receives, sends, purpose, false);
  }
  std::unique_ptr<Transfer> expect(std::span<const Message> receives, Purpose purpose) override;
  std::unique_ptr<Transfer> answer(std::span<const Message> sends, Purpose purpose) override {
    return exchange({}, sends, purpose, true);
  }

  std::unique_ptr<Transfer> start_reduce_scatter(Tensor whole,
                                                 std::span<const std::int64_t> counts, Tensor mine,
                                                 Purpose purpose) override {
    const Parts parts = parts_of(whole, counts, mine, "reduce_scatter");
    const auto element = static_cast<std::int64_t>(size_of(whole.dtype));
    require(whole.dtype != DType::bf16, "sums across ranks are kept in f32 or f64, not in bf16");
    count(purpose, (parts.total - parts.mine) * element, (size() - 1) * parts.mine * element);
    const ncclDataType_t type = whole.dtype == DType::f64 ? ncclDouble : ncclFloat;
    begin("reduce_scatter", purpose, parts.total * element);
    if (parts.even) {
      check(ncclReduceScatter(whole.data, mine.data, static_cast<std::size_t>(parts.mine), type,
                              ncclSum, comm_, stream_),
            "ncclReduceScatter");
    } else {
      by_part(whole, counts, [&](Tensor part, int root) {
        check(ncclReduce(part.data, mine.data, static_cast<std::size_t>(part.size()), type, ncclSum,
                         root, comm_, stream_),
              "ncclReduce");
      });
    }
    return finish();
  }

  std::unique_ptr<Transfer> start_all_gather(Tensor mine, std::span<const std::int64_t> counts,
                                             Tensor whole, Purpose purpose) override {
    const Parts parts = parts_of(whole, counts, mine, "all_gather");
    const auto element = static_cast<std::int64_t>(size_of(whole.dtype));
    count(purpose, (size() - 1) * parts.mine * element, (parts.total - parts.mine) * element);
    begin("all_gather", purpose, parts.total * element);
    if (parts.even) {
      check(ncclAllGather(mine.data, whole.data, static_cast<std::size_t>(parts.mine * element),
                          ncclUint8, comm_, stream_),
            "ncclAllGather");
    } else {
      by_part(whole, counts, [&](Tensor part, int root) {
        check(ncclBroadcast(root == rank() ? mine.data : part.data, part.data,
                            static_cast<std::size_t>(part.size() * element), ncclUint8, root, comm_,
                            stream_),
              "ncclBroadcast");
      });
    }
    return finish();
  }

 private:
  friend class NcclTransfer;

  struct Parts {
    std::int64_t total = 0, mine = 0;
    bool even = true;
  };
  Parts parts_of(Tensor whole, std::span<const std::int64_t> counts, Tensor mine,
                 const char* operation) const {
    require(counts.size() == static_cast<std::size_t>(size()),
            "{} in group {} of {} ranks was given {} counts", operation, name_, size(),
            counts.size());
    const Parts parts{std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
                      counts[static_cast<std::size_t>(rank())],
                      std::ranges::all_of(counts, [&](auto n) { return n == counts[0]; })};
    require(whole.size() == parts.total && mine.size() == parts.mine,
            "{} in group {}: the parts sum to {} elements, {} of them own, but the tensors hold {} "
            "and {}",
            operation, name_, parts.total, parts.mine, whole.size(), mine.size());
    return parts;
  }

  /// enqueue(a rank's part of the whole, the rank) for all of them, as one group of NCCL's.
  template <class Enqueue>
  void by_part(Tensor whole, std::span<const std::int64_t> counts, Enqueue enqueue) {
    check(ncclGroupStart(), "ncclGroupStart");
    std::int64_t offset = 0;
    for (int root = 0; root < size(); ++root) {
      const std::int64_t n = counts[static_cast<std::size_t>(root)];
      enqueue(whole.slice_cols(offset, n), root);
      offset += n;
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
  }

  void check(ncclResult_t status, const char* operation) const {
    if (status == ncclSuccess || status == ncclInProgress) return;
    const char* detail = ncclGetLastError(comm_);
    fail("NCCL, group {}, rank {}, {}: {} failed: {}{}{} (NCCL_DEBUG=INFO says more)", name_,
         rank(), device_.name(), operation, ncclGetErrorString(status),
         detail && *detail ? ": " : "", detail ? detail : "");
  }
  /// An error of an operation that was enqueued before.
  void check_pending() const {
    ncclResult_t status = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &status), "ncclCommGetAsyncError");
    check(status, "an operation enqueued before");
  }

  void begin(const char* operation, Purpose purpose, std::int64_t bytes) {
    check_pending();
    if (traffic_->activity) {  // the host does not wait here, but a stall is to be traced to it
      traffic_->activity->begin(operation, purpose, name_, ++sequence_, bytes, {});
      traffic_->activity->end();
    }
    follow_device();
  }
  std::unique_ptr<Transfer> finish();  // of what was enqueued since begin()
  std::unique_ptr<Transfer> exchange(std::span<const Message> receives,
                                     std::span<const Message> sends, Purpose purpose, bool answer);
  std::int64_t others(std::span<const Message> messages) const {
    std::int64_t bytes = 0;
    for (const Message& m : messages) bytes += m.peer == rank() ? 0 : m.bytes;
    return bytes;
  }

  void count(Purpose purpose, std::int64_t sent, std::int64_t received) {
    if (size() == 1 || sent + received == 0) return;
    Traffic::Count& c = traffic_->at(purpose);
    c.sent += sent;
    c.received += received;
    c.calls += 1;
  }

  std::shared_ptr<Traffic> traffic_;
  std::string name_;
  int exceptions_;
  ncclComm_t comm_ = nullptr;
  int round_of(int difference) const { return (difference + size()) % size(); }
  void enqueue_expected();
  void receive(const Message& m);

  std::int64_t sequence_ = 0;
  NcclTransfer* expecting_ = nullptr;  // answers that are not enqueued yet
};

}  // namespace bdlm::cuda
