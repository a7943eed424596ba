// SPDX-License-Identifier: Apache-2.0
// A group on NCCL. Everything is enqueued on the group's stream and nothing blocks the host: order
// with the computation is kept by events. Ranks issue operations in the order of the plan, which is
// the same on all of them.
#include "kernels/error.h"
#include "parallel/cuda/device_group.h"

#if defined(BDLM_NCCL) || defined(BDLM_EMU)
#ifdef BDLM_EMU
#include "parallel/emu/nccl.h"
#else
#include <nccl.h>
#endif

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <vector>

#include "parallel/watchdog.h"

namespace bdlm::cuda {
namespace {

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
    if (std::uncaught_exceptions() == exceptions_)
      ncclCommDestroy(comm_);
    else
      ncclCommAbort(comm_);
  }

  std::unique_ptr<Transfer> post(std::span<const Message> receives, std::span<const Message> sends,
                                 Purpose purpose) override;

  std::unique_ptr<Transfer> start_reduce_scatter(Tensor whole,
                                                 std::span<const std::int64_t> counts, Tensor mine,
                                                 Purpose purpose) override {
    const Parts parts = parts_of(counts);
    const auto element = static_cast<std::int64_t>(size_of(whole.dtype));
    count(purpose, (parts.total - parts.mine) * element, (size() - 1) * parts.mine * element);
    require(whole.dtype != DType::bf16, "sums across ranks are kept in f32 or f64, not in bf16");
    const ncclDataType_t type = whole.dtype == DType::f64 ? ncclDouble : ncclFloat;
    begin("reduce_scatter", purpose, parts.total * element);
    if (parts.even) {
      check(ncclReduceScatter(whole.data, mine.data, static_cast<std::size_t>(parts.mine), type,
                              ncclSum, comm_, stream_),
            "ncclReduceScatter");
    } else {
      check(ncclGroupStart(), "ncclGroupStart");
      std::int64_t offset = 0;
      for (int root = 0; root < size(); ++root) {
        const std::int64_t n = counts[static_cast<std::size_t>(root)];
        check(ncclReduce(whole.slice_cols(offset, n).data, mine.data, static_cast<std::size_t>(n),
                         type, ncclSum, root, comm_, stream_),
              "ncclReduce");
        offset += n;
      }
      check(ncclGroupEnd(), "ncclGroupEnd");
    }
    return finish();
  }

  std::unique_ptr<Transfer> start_all_gather(Tensor mine, std::span<const std::int64_t> counts,
                                             Tensor whole, Purpose purpose) override {
    const Parts parts = parts_of(counts);
    const auto element = static_cast<std::int64_t>(size_of(whole.dtype));
    count(purpose, (size() - 1) * parts.mine * element, (parts.total - parts.mine) * element);
    begin("all_gather", purpose, parts.total * element);
    if (parts.even) {
      check(ncclAllGather(mine.data, whole.data, static_cast<std::size_t>(parts.mine * element),
                          ncclUint8, comm_, stream_),
            "ncclAllGather");
    } else {
      check(ncclGroupStart(), "ncclGroupStart");
      std::int64_t offset = 0;
      for (int root = 0; root < size(); ++root) {
        const std::int64_t n = counts[static_cast<std::size_t>(root)];
        void* const part = whole.slice_cols(offset, n).data;
        check(ncclBroadcast(root == rank() ? mine.data : part, part,
                            static_cast<std::size_t>(n * element), ncclUint8, root, comm_, stream_),
              "ncclBroadcast");
        offset += n;
      }
      check(ncclGroupEnd(), "ncclGroupEnd");
    }
    return finish();
  }

 private:
  friend class NcclTransfer;

  struct Parts {
    std::int64_t total = 0, mine = 0;
    bool even = true;
  };
  Parts parts_of(std::span<const std::int64_t> counts) const {
    require(counts.size() == static_cast<std::size_t>(size()), "group {} of {} ranks was given {} counts",
            name_, size(), counts.size());
    return {std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
            counts[static_cast<std::size_t>(rank())],
            std::all_of(counts.begin(), counts.end(), [&](auto n) { return n == counts[0]; })};
  }

  void check(ncclResult_t status, const char* operation) const {
    if (status == ncclSuccess || status == ncclInProgress) return;
    const char* detail = ncclGetLastError(comm_);
    fail("NCCL, group {}, rank {}, {}: {} failed: {}{}{} (NCCL_DEBUG=INFO says more)", name_, rank(),
         device_.name(), operation, ncclGetErrorString(status), detail && *detail ? ": " : "",
         detail ? detail : "");
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

class NcclTransfer final : public Transfer {
 public:
  NcclTransfer(NcclGroup& group, std::span<const Message> receives)
      : group_(group), exceptions_(std::uncaught_exceptions()) {
    for (const Message& m : receives) receives_.push_back({m, m.bytes == 0, 0});
  }
  ~NcclTransfer() override {
    if (std::uncaught_exceptions() == exceptions_) wait_all();
    if (group_.expecting_ == this) group_.expecting_ = nullptr;
  }

  void wait_receive(std::size_t i) override {
    if (!receives_.at(i).enqueued) group_.enqueue_expected();
    if (receives_[i].message.bytes > 0)
      rounds_[receives_[i].round].hold_back(group_.device_.stream());
  }
  void wait_all() override {
    if (group_.expecting_ == this) group_.enqueue_expected();
    if (!rounds_.empty()) rounds_.back().hold_back(group_.device_.stream());
  }
  void progress() override { group_.check_pending(); }

  /// Enqueues the receives that `chosen(peer)` says, within an open NCCL group.
  template <class Chosen>
  bool enqueue(Chosen chosen) {
    bool any = false;
    for (Receive& r : receives_) {
      if (r.enqueued || !chosen(r.message.peer)) continue;
      group_.receive(r.message);
      r.enqueued = any = true;
      r.round = rounds_.size();
    }
    return any;
  }
  void end_round() {
    rounds_.emplace_back();
    rounds_.back().record(group_.stream_);
  }

 private:
  struct Receive {
    Message message;
    bool enqueued = false;
    std::size_t round = 0;
  };
  NcclGroup& group_;
  int exceptions_;
  std::vector<Receive> receives_;
  std::vector<Event> rounds_;
};

/// In round k this rank sends to rank - k and receives from rank + k: every link is used once, and
/// shards arrive in the order in which they are attended.
///
/// A post of receives alone expects answers: rank - k sends one when it has worked on what it got
/// from here, in its round k, alone. On one stream a receive would hold back the answers that this
/// rank owes. So it goes into the group of this rank's own answer of round k, or of the next round
/// that has one: rounds then wait for lower rounds only, and some lowest one can always go on.
std::unique_ptr<Transfer> NcclGroup::post(std::span<const Message> receives,
                                          std::span<const Message> sends, Purpose purpose) {
  std::int64_t sent = 0, received = 0;
  for (const Message& m : sends) sent += m.peer == rank() ? 0 : m.bytes;
  for (const Message& m : receives) received += m.peer == rank() ? 0 : m.bytes;
  count(purpose, sent, received);
  auto transfer = std::make_unique<NcclTransfer>(*this, receives);
  if (sends.empty() && receives.empty()) return transfer;  // a group of one rank
  begin("exchange", purpose, sent + received);
  if (sends.empty()) {
    require(expecting_ == nullptr, "group {} expects answers already", name_);
    expecting_ = transfer.get();
    return transfer;
  }
  const bool answer = receives.empty();
  for (int round = 0; round < size(); ++round) {
    check(ncclGroupStart(), "ncclGroupStart");
    bool used = false;
    for (const Message& m : sends) {
      if (m.bytes == 0 || round_of(answer ? m.peer - rank() : rank() - m.peer) != round) continue;
      check(ncclSend(m.data, static_cast<std::size_t>(m.bytes), ncclUint8, m.peer, comm_, stream_),
            "ncclSend");
      used = true;
    }
    used |= transfer->enqueue([&](int peer) { return round_of(peer - rank()) == round; });
    const bool expected = used && answer && expecting_ != nullptr &&
                          expecting_->enqueue([&](int peer) { return round_of(rank() - peer) <= round; });
    check(ncclGroupEnd(), "ncclGroupEnd");
    if (used) transfer->end_round();
    if (expected) expecting_->end_round();
  }
  return transfer;
}

std::unique_ptr<Transfer> NcclGroup::finish() {
  auto transfer = std::make_unique<NcclTransfer>(*this, std::span<const Message>());
  transfer->end_round();
  return transfer;
}

void NcclGroup::enqueue_expected() {
  check(ncclGroupStart(), "ncclGroupStart");
  const bool any = expecting_->enqueue([](int) { return true; });
  check(ncclGroupEnd(), "ncclGroupEnd");
  if (any) expecting_->end_round();
  expecting_ = nullptr;
}

void NcclGroup::receive(const Message& m) {
  check(ncclRecv(m.data, static_cast<std::size_t>(m.bytes), ncclUint8, m.peer, comm_, stream_),
        "ncclRecv");
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_group(std::unique_ptr<Communicator> host,
                                              std::shared_ptr<CudaDevice> device,
                                              std::shared_ptr<Traffic> traffic, std::string name) {
  return std::make_unique<NcclGroup>(std::move(host), std::move(device), std::move(traffic), std::move(name));
}

}  // namespace bdlm::cuda
#else
namespace bdlm::cuda {

std::unique_ptr<Communicator> make_nccl_group(std::unique_ptr<Communicator>, std::shared_ptr<CudaDevice>,
                                              std::shared_ptr<Traffic>, std::string) {
  fail("parallel.transport: nccl is asked for, but this backend was built without NCCL: use host");
}

}  // namespace bdlm::cuda
#endif
