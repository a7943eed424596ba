// SPDX-License-Identifier: Apache-2.0
// Shards go round: at step k = 1 .. P - 1 this rank holds the shard of rank - k, which it got from
// the left and passes on to the right while it computes. In the backward pass the sum of the
// shard's gradient follows it: each rank adds its part and passes the sum on, the last hop is home.
// All ranks make the same hops in the same order, each a receive and a send in one.
#include <algorithm>
#include <array>

#include "kernels/error.h"
#include "parallel/exchange_transports.h"

namespace bdlm {
namespace {

class Ring final : public Exchange {
 public:
  explicit Ring(const ExchangeContext& context)
      : context_(context),
        size_(context.group.size()),
        left_((context.group.rank() + size_ - 1) % size_),
        right_((context.group.rank() + 1) % size_) {}

  void begin(const LayerPlan& plan, Tensor kv, Purpose purpose) override {
    require(plan_ == nullptr || !gradients_, "the exchange of gradients before this was not ended");
    check_rows(context_, plan, kv, context_.compute);
    require(size_ == 1 || plan.shard_rows.size() == static_cast<std::size_t>(size_),
            "a ring of {} ranks needs a plan for the ring, with the rows of each shard", size_);
    finish();
    plan_ = &plan;
    purpose_ = purpose;
    if (size_ == 1) return;
    Tensor own = kv.slice_rows(0, plan.shared_rows);
    if (!own.contiguous()) {
      holding_ = context_.rows(plan.shared_rows, context_.compute);
      context_.device.copy(own, holding_);
      own = holding_;
    }
    hop(own);
  }

  void resume(const LayerPlan&, KeptShards) override {
    fail("a ring keeps no shards to resume from: begin again (keep_remote_kv has no effect on it)");
  }

  std::optional<Shard> next() override {
    require(plan_ != nullptr, "next() needs a begin() before it");
    require(!open_, "a shard's gradient was not given back before the next one was asked for");
    while (step_ + 1 < size_) {
      ++step_;
      hop_->wait_all();  // the shard is here, and the one before it has left
      holding_ = std::move(arriving_);
      if (step_ + 1 < size_) hop(holding_);
      const std::int64_t rows = rows_of(step_);
      if (rows == 0) {
        if (gradients_) sum_hop({});
        continue;
      }
      Shard shard{&peer_of(step_), holding_, {}};
      require(shard.peer->receive == rows,
              "the shard of rank {} has {} rows, but this rank's plan expects {}", shard.peer->rank,
              rows, shard.peer->receive);
      if (gradients_) {
        // The partial sum travels while the caller computes; give_back adds the two.
        gradient_ = context_.rows(rows, context_.sum());
        context_.device.zero(gradient_);
        shard.gradient = gradient_;
        open_ = true;
      }
      return shard;
    }
    hop_.reset();
    holding_.reset();
    return std::nullopt;
  }

  void progress() override {
    for (Transfer* transfer : {hop_.get(), sum_hop_.get()}) {
      if (transfer != nullptr) transfer->progress();
    }
  }

  KeptShards keep() override { return {}; }
  bool keeps() const override { return false; }

  void begin_gradients() override {
    require(plan_ != nullptr && step_ == 0, "begin_gradients() follows begin()");
    gradients_ = true;
  }

  void give_back(const Shard& shard) override {
    require(open_ && shard.gradient.data == gradient_.tensor().data,
            "the shard that next() returned last is given back, once");
    if (step_ > 1) {
      sum_hop_->wait_all();
      context_.device.add(sum_, gradient_);
    }
    sum_hop(std::move(gradient_));
    open_ = false;
  }

  void end_gradients(Tensor dkv) override {
    require(gradients_ && !open_ && step_ + 1 == size_,
            "end_gradients() follows the give_back() of the last shard");
    check_rows(context_, *plan_, dkv, context_.sum());
    if (size_ > 1) sum_hop_->wait_all();
    if (size_ > 1 && plan_->shared_rows > 0)
      context_.device.add(sum_, dkv.slice_rows(0, plan_->shared_rows));
    finish();
  }

 private:
  int shard_of(int step) const { return (context_.group.rank() + size_ - step) % size_; }

  std::int64_t rows_of(int step) const {
    return plan_->shard_rows[static_cast<std::size_t>(shard_of(step))];
  }

  const Peer& peer_of(int step) const {
    const int rank = shard_of(step);
    const auto peer = std::find_if(plan_->peers.begin(), plan_->peers.end(),
                                   [rank](const Peer& p) { return p.rank == rank; });
    require(peer != plan_->peers.end(), "the plan has no peer of rank {}", rank);
    return *peer;
  }

  /// Passes on what this rank holds and receives the next shard.
  void hop(const Tensor& held) {
    arriving_ = context_.rows(rows_of(step_ + 1), context_.compute);
    const std::array receives{message_of(arriving_, left_)};
    const std::array sends{message_of(held, right_)};
    hop_ = context_.group.post(receives, sends, purpose_);
  }

  /// Passes the sum of this step's shard on and receives that of the next step's: after the last
  /// step that is this rank's own, come home.
  void sum_hop(Buffer sum) {
    sum_hop_.reset();  // waits: its buffers are given up in the next lines
    leaving_ = std::move(sum);
    sum_ = context_.rows(rows_of(step_ + 1), context_.sum());
    const std::array receives{message_of(sum_, left_)};
    const std::array sends{message_of(leaving_, right_)};
    sum_hop_ = context_.group.post(receives, sends, Purpose::exchange_gradient);
  }

  void finish() {
    hop_.reset();
    sum_hop_.reset();
    holding_.reset();
    arriving_.reset();
    gradient_.reset();
    sum_.reset();
    leaving_.reset();
    plan_ = nullptr;
    step_ = 0;
    gradients_ = false;
  }

  ExchangeContext context_;
  int size_, left_, right_;
  const LayerPlan* plan_ = nullptr;
  Purpose purpose_ = Purpose::exchange_forward;
  int step_ = 0;
  bool gradients_ = false;
  bool open_ = false;          // gradient_ is with the caller
  Buffer holding_, arriving_;  // keys and values
  Buffer gradient_;            // this rank's part of the sum
  Buffer sum_, leaving_;       // the sum of the ranks before, and with this one
  // After the buffers: destroyed first, and a transfer waits for its messages.
  std::unique_ptr<Transfer> hop_, sum_hop_;
};

}  // namespace

std::unique_ptr<Exchange> make_ring(const ExchangeContext& context) {
  return std::make_unique<Ring>(context);
}

}  // namespace bdlm
