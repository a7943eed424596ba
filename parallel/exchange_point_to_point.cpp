// SPDX-License-Identifier: Apache-2.0
// Every owner sends every reader the rows that the plan lists, all at once; gradients take the way
// back, one message a shard as soon as it is done.
#include <algorithm>
#include <vector>

#include "kernels/error.h"
#include "parallel/exchange_transports.h"

namespace bdlm {
namespace {

class PointToPoint final : public Exchange {
 public:
  explicit PointToPoint(const ExchangeContext& context) : context_(context) {}

  void begin(const LayerPlan& plan, Tensor kv, Purpose purpose) override {
    check_rows(context_, plan, kv, context_.compute);
    start(plan);
    std::vector<Message> receives, sends;
    for (const Peer& peer : plan.peers) {
      received_.push_back(context_.rows(peer.receive, context_.compute));
      receives.push_back(message_of(received_.back(), peer.rank));
      sends.push_back(message_of(pack(kv, peer.send), peer.rank));
    }
    transfer_ = context_.group.post(receives, sends, purpose);
  }

  void resume(const LayerPlan& plan, KeptShards kept) override {
    start(plan);
    require(kept.kv.size() == plan.peers.size(), "{} shards were kept, the plan has {} peers",
            kept.kv.size(), plan.peers.size());
    for (std::size_t i = 0; i < plan.peers.size(); ++i) {
      require(kept.kv[i].tensor().rows == plan.peers[i].receive,
              "{} rows of rank {} were kept, the plan reads {}", kept.kv[i].tensor().rows,
              plan.peers[i].rank, plan.peers[i].receive);
    }
    received_ = std::move(kept.kv);
  }

  std::optional<Shard> next() override {
    require(plan_ != nullptr, "next() needs a begin() or resume() before it");
    require(!open_, "a shard's gradient was not given back before the next one was asked for");
    const auto& peers = plan_->peers;
    while (at_ < peers.size() && peers[at_].receive == 0) ++at_;
    if (at_ == peers.size()) {
      transfer_.reset();  // waits for what others have still to fetch
      packed_.clear();
      return std::nullopt;
    }
    const std::size_t i = at_++;
    if (transfer_) transfer_->wait_receive(i);
    Shard shard{&peers[i], received_[i], {}};
    if (returning_) {
      gradient_ = context_.rows(peers[i].receive, context_.sum());
      context_.device.zero(gradient_);
      shard.gradient = gradient_;
      open_ = true;
    }
    return shard;
  }

  void progress() override {
    if (transfer_) transfer_->progress();
    if (returning_) returning_->progress();
    for (const auto& transfer : giving_) transfer->progress();
  }

  bool keeps() const override { return true; }
  KeptShards keep() override {
    require(plan_ != nullptr && at_ == plan_->peers.size() && transfer_ == nullptr,
            "keep() is called after next() has returned empty");
    plan_ = nullptr;
    return {std::move(received_)};
  }

  void begin_gradients() override {
    require(plan_ != nullptr && at_ == 0, "begin_gradients() follows begin() or resume()");
    std::vector<Message> receives;
    for (const Peer& peer : plan_->peers) {
      const auto rows = static_cast<std::int64_t>(peer.send.size());
      returned_.push_back(context_.rows(rows, context_.compute));
      receives.push_back(message_of(returned_.back(), peer.rank));
    }
    returning_ = context_.group.expect(receives, Purpose::exchange_gradient);
  }

  void give_back(const Shard& shard) override {
    require(open_ && shard.gradient.data == gradient_.tensor().data,
            "the shard that next() returned last is given back, once");
    Buffer wire = std::move(gradient_);
    if (context_.compute != context_.sum()) {
      Buffer rounded = context_.rows(wire.tensor().rows, context_.compute);
      context_.device.copy(wire, rounded);
      wire = std::move(rounded);
    }
    const Message message = message_of(wire, shard.peer->rank);
    giving_.push_back(context_.group.answer({&message, 1}, Purpose::exchange_gradient));
    given_.push_back(std::move(wire));
    received_[static_cast<std::size_t>(shard.peer - plan_->peers.data())].reset();
    open_ = false;
  }

  void end_gradients(Tensor dkv) override {
    require(returning_ != nullptr && !open_ && at_ == plan_->peers.size(),
            "end_gradients() follows the give_back() of the last shard");
    check_rows(context_, *plan_, dkv, context_.sum());
    // Peers are numbered from this rank on; the sum is taken from rank 0 on, so that its order, and
    // with it every bit, is a matter of the topology alone.
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < plan_->peers.size(); ++i) order.push_back(i);
    std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return plan_->peers[a].rank < plan_->peers[b].rank;
    });
    for (const std::size_t i : order) {
      const std::vector<std::int32_t>& rows = plan_->peers[i].send;
      if (rows.empty()) continue;
      returning_->wait_receive(i);
      if (is_run(rows)) {
        context_.device.add(returned_[i],
                            dkv.slice_rows(rows.front(), static_cast<std::int64_t>(rows.size())));
      } else {
        const auto list = context_.device.upload(std::span<const std::int32_t>(rows));
        context_.device.scatter_add_rows(returned_[i], list.data, dkv);
      }
    }
    finish();
  }

 private:
  void start(const LayerPlan& plan) {
    require(returning_ == nullptr, "the exchange of gradients before this one was not ended");
    finish();
    plan_ = &plan;
  }

  void finish() {
    transfer_.reset();
    returning_.reset();
    giving_.clear();
    received_.clear();
    packed_.clear();
    returned_.clear();
    given_.clear();
    plan_ = nullptr;
    at_ = 0;
  }

  /// The listed rows of kv, one after another: a view of kv if they already are.
  Tensor pack(const Tensor& kv, const std::vector<std::int32_t>& rows) {
    const auto count = static_cast<std::int64_t>(rows.size());
    if (count == 0) return {};
    if (is_run(rows)) {
      const Tensor run = kv.slice_rows(rows.front(), count);
      if (run.contiguous()) return run;
    }
    const auto list = context_.device.upload(std::span<const std::int32_t>(rows));
    packed_.push_back(context_.rows(count, context_.compute));
    context_.device.gather_rows(kv, list.data, packed_.back());
    return packed_.back();
  }

  ExchangeContext context_;
  const LayerPlan* plan_ = nullptr;
  std::size_t at_ = 0;  // the next peer
  bool open_ = false;   // gradient_ is with the caller
  Buffer gradient_;
  std::vector<Buffer> received_, returned_;  // by peer
  std::vector<Buffer> packed_, given_;
  // After the buffers: destroyed first, and a transfer waits for its messages.
  std::unique_ptr<Transfer> transfer_, returning_;
  std::vector<std::unique_ptr<Transfer>> giving_;
};

}  // namespace

std::unique_ptr<Exchange> make_point_to_point(const ExchangeContext& context) {
  return std::make_unique<PointToPoint>(context);
}

}  // namespace bdlm
