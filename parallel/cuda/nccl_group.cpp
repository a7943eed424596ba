// SPDX-License-Identifier: Apache-2.0
// Messages of a group on NCCL.
#if defined(BDLM_NCCL) || defined(BDLM_EMU)
#include "parallel/cuda/nccl_group.h"

#include <vector>

namespace bdlm::cuda {

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
/// shards arrive in the order in which they are attended. A round is one group of NCCL, so that a
/// send never waits for the receive of the same call on the other side.
///
/// An answer to rank - k is given when this rank has worked on what it got from there, in round k,
/// alone. On one stream a receive would hold back the answers that this rank owes. So it goes into
/// the group of this rank's own answer of round k, or of the next round that has one: rounds then
/// wait for lower rounds only, and some lowest one can always go on.
std::unique_ptr<Transfer> NcclGroup::expect(std::span<const Message> receives, Purpose purpose) {
  const std::int64_t received = others(receives);
  count(purpose, 0, received);
  auto transfer = std::make_unique<NcclTransfer>(*this, receives);
  if (receives.empty()) return transfer;
  begin("exchange", purpose, received);
  require(expecting_ == nullptr, "group {} expects answers already", name_);
  expecting_ = transfer.get();
  return transfer;
}

std::unique_ptr<Transfer> NcclGroup::exchange(std::span<const Message> receives,
                                              std::span<const Message> sends, Purpose purpose,
                                              bool answer) {
  const std::int64_t sent = others(sends), received = others(receives);
  count(purpose, sent, received);
  auto transfer = std::make_unique<NcclTransfer>(*this, receives);
  if (sends.empty() && receives.empty()) return transfer;
  begin("exchange", purpose, sent + received);
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
                          expecting_->enqueue(
                              [&](int peer) { return round_of(rank() - peer) <= round; });
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

std::unique_ptr<Communicator> make_nccl_group(std::unique_ptr<Communicator> host,
                                              std::shared_ptr<CudaDevice> device,
                                              std::shared_ptr<Traffic> traffic, std::string name) {
  return std::make_unique<NcclGroup>(std::move(host), std::move(device), std::move(traffic),
                                     std::move(name));
}

}  // namespace bdlm::cuda
#endif
