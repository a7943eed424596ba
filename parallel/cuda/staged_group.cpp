// SPDX-License-Identifier: Apache-2.0
// Device memory over MPI through pinned host buffers: several ranks on one GPU, and tests. Copies
// run on the group's stream; messages leave once their copy is done, in the order in which they were
// posted, so that two transfers of a pair never mix.
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/cuda/device_group.h"

namespace bdlm::cuda {
namespace {

class StagedTransfer;

/// Messages that have still to leave, of all groups of a device: before the host waits for others
/// in one group, what it owes in every other must be on its way, or two ranks wait for each other.
class Outbox {
 public:
  static std::shared_ptr<Outbox> of(const CudaDevice& device) {
    static std::map<const CudaDevice*, std::weak_ptr<Outbox>> all;
    std::shared_ptr<Outbox> outbox = all[&device].lock();
    if (!outbox) all[&device] = outbox = std::make_shared<Outbox>();
    return outbox;
  }
  void add(StagedTransfer& transfer) { unsent_.push_back(&transfer); }
  void remove(StagedTransfer& transfer) { std::erase(unsent_, &transfer); }
  /// Sends what has been copied to the host; all of it, if need be by waiting for the copies.
  void send_copied(bool all);

 private:
  std::deque<StagedTransfer*> unsent_;
};

class StagedGroup final : public DeviceGroup {
 public:
  StagedGroup(std::unique_ptr<Communicator> host, std::shared_ptr<CudaDevice> device)
      : DeviceGroup(std::move(host), std::move(device)), outbox_(Outbox::of(device_)) {}

  std::unique_ptr<Transfer> post(std::span<const Message> receives, std::span<const Message> sends,
                                 Purpose purpose) override;
  std::unique_ptr<Transfer> start_reduce_scatter(Tensor whole,
                                                 std::span<const std::int64_t> counts, Tensor mine,
                                                 Purpose purpose) override;
  std::unique_ptr<Transfer> start_all_gather(Tensor mine, std::span<const std::int64_t> counts,
                                             Tensor whole, Purpose purpose) override;

 private:
  friend class StagedTransfer;
  Staging& staging() { return device_.staging(); }
  Communicator& host() { return *host_; }
  Stream copies() { return stream_; }
  Stream computation() { return device_.stream(); }

  Outbox& outbox() { return *outbox_; }
  void before_host_call() override { outbox_->send_copied(true); }

  /// The host's copy of a flat tensor, and the way back.
  Staging::Block fetch(const Tensor& x, std::size_t room);
  void put_back(Staging::Block block, std::size_t offset, const Tensor& x);

  std::shared_ptr<Outbox> outbox_;
};

class StagedTransfer final : public Transfer {
 public:
  StagedTransfer(StagedGroup& group, std::span<const Message> receives,
                 std::span<const Message> sends, Purpose purpose)
      : group_(group), purpose_(purpose), exceptions_(std::uncaught_exceptions()) {
    std::vector<Message> arriving;
    for (const Message& m : receives) {
      arrivals_.push_back({m, {}, m.bytes == 0});
      if (m.bytes > 0) arrivals_.back().block = group.staging().acquire(bytes_of(m));
      arriving.push_back({arrivals_.back().block.data, m.bytes, m.peer});
    }
    receiving_ = group.host().post(arriving, {}, purpose);
    for (const Message& m : sends) {
      if (m.bytes == 0) continue;
      const Staging::Block block = group.staging().acquire(bytes_of(m));
      check_cuda(cudaMemcpyAsync(block.data, m.data, bytes_of(m), cudaMemcpyDeviceToHost,
                                 group.copies()),
                 "copy of a message to the host");
      blocks_.push_back(block);
      leaving_.push_back({block.data, m.bytes, m.peer});
    }
    copied_.record(group.copies());
  }

  ~StagedTransfer() override {
    if (std::uncaught_exceptions() == exceptions_)
      wait_all();
    else
      group_.outbox().remove(*this);
  }

  void wait_receive(std::size_t i) override {
    Arrival& arrival = arrivals_.at(i);
    if (arrival.here) return;
    group_.outbox().send_copied(true);  // others may wait for it before they send
    receiving_->wait_receive(i);
    check_cuda(cudaMemcpyAsync(arrival.to.data, arrival.block.data, bytes_of(arrival.to),
                               cudaMemcpyHostToDevice, group_.copies()),
               "copy of a message to the device");
    group_.staging().release_after(arrival.block, group_.copies());
    arrival.here = true;
    Event done;
    done.record(group_.copies());
    done.hold_back(group_.computation());
  }

  void wait_all() override {
    group_.outbox().send_copied(true);
    for (std::size_t i = 0; i < arrivals_.size(); ++i) wait_receive(i);
    if (sending_) sending_->wait_all();
    for (const Staging::Block& block : blocks_) group_.staging().release(block);
    blocks_.clear();
    copied_.hold_back(group_.computation());  // the messages' memory may change from now on
  }

  void progress() override {
    group_.outbox().send_copied(false);
    receiving_->progress();
    if (sending_) sending_->progress();
  }

  bool copied() const { return copied_.done(); }
  void send() {
    copied_.wait();
    sending_ = group_.host().post({}, leaving_, purpose_);
  }

 private:
  struct Arrival {
    Message to;
    Staging::Block block;
    bool here = false;
  };
  static std::size_t bytes_of(const Message& m) { return static_cast<std::size_t>(m.bytes); }

  StagedGroup& group_;
  Purpose purpose_;
  int exceptions_;
  std::vector<Arrival> arrivals_;
  std::vector<Staging::Block> blocks_;  // of the messages that leave
  std::vector<Message> leaving_;
  Event copied_;
  std::unique_ptr<Transfer> receiving_, sending_;
};

std::unique_ptr<Transfer> StagedGroup::post(std::span<const Message> receives,
                                            std::span<const Message> sends, Purpose purpose) {
  follow_device();
  auto transfer = std::make_unique<StagedTransfer>(*this, receives, sends, purpose);
  outbox_->add(*transfer);
  outbox_->send_copied(false);
  return transfer;
}

void Outbox::send_copied(bool all) {
  while (!unsent_.empty() && (all || unsent_.front()->copied())) {
    unsent_.front()->send();
    unsent_.pop_front();
  }
}

Staging::Block StagedGroup::fetch(const Tensor& x, std::size_t room) {
  const Staging::Block block = staging().acquire(room);
  staging().to_host(x.data, block.data, static_cast<std::size_t>(x.size()) * size_of(x.dtype),
                    computation());
  return block;
}

void StagedGroup::put_back(Staging::Block block, std::size_t offset, const Tensor& x) {
  check_cuda(cudaMemcpyAsync(x.data, static_cast<std::byte*>(block.data) + offset,
                             static_cast<std::size_t>(x.size()) * size_of(x.dtype),
                             cudaMemcpyHostToDevice, computation()),
             "copy to the device");
  staging().release_after(block, computation());
}

std::unique_ptr<Transfer> StagedGroup::start_reduce_scatter(Tensor whole,
                                                            std::span<const std::int64_t> counts,
                                                            Tensor mine, Purpose purpose) {
  outbox_->send_copied(true);
  const std::size_t bytes = static_cast<std::size_t>(whole.size()) * size_of(whole.dtype);
  const Staging::Block all = fetch(whole, bytes);
  const Tensor host{all.data, 1, whole.size(), whole.size(), whole.dtype};
  std::int64_t offset = 0;
  for (int r = 0; r < rank(); ++r) offset += counts[static_cast<std::size_t>(r)];
  host_->reduce_scatter(host, counts, host.slice_cols(offset, mine.size()), purpose);
  if (mine.empty())
    staging().release(all);
  else
    put_back(all, static_cast<std::size_t>(offset) * size_of(whole.dtype), mine);
  return std::make_unique<FinishedTransfer>();
}

std::unique_ptr<Transfer> StagedGroup::start_all_gather(Tensor mine,
                                                        std::span<const std::int64_t> counts,
                                                        Tensor whole, Purpose purpose) {
  outbox_->send_copied(true);
  const std::size_t bytes = static_cast<std::size_t>(whole.size()) * size_of(whole.dtype);
  const Staging::Block own = fetch(mine, static_cast<std::size_t>(mine.size()) * size_of(mine.dtype));
  const Staging::Block all = staging().acquire(bytes);
  const Tensor host{all.data, 1, whole.size(), whole.size(), whole.dtype};
  host_->all_gather({own.data, 1, mine.size(), mine.size(), mine.dtype}, counts, host, purpose);
  staging().release(own);
  put_back(all, 0, whole);
  return std::make_unique<FinishedTransfer>();
}

}  // namespace

std::unique_ptr<Communicator> make_staged_group(std::unique_ptr<Communicator> host,
                                                std::shared_ptr<CudaDevice> device) {
  return std::make_unique<StagedGroup>(std::move(host), std::move(device));
}

}  // namespace bdlm::cuda
