// SPDX-License-Identifier: Apache-2.0
// What the two kinds of groups over device memory share: they wrap a group of MPI, which carries
// host values and counts, and have a stream of their own beside the device's.
#pragma once

#include <memory>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "parallel/communicator.h"

namespace bdlm::cuda {

class DeviceGroup : public Communicator {
 public:
  DeviceGroup(std::unique_ptr<Communicator> host, std::shared_ptr<CudaDevice> device)
      : host_(std::move(host)), kept_(std::move(device)), device_(*kept_) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void all_reduce(std::span<double> values, Reduce op) override {
    before_host_call();
    host_->all_reduce(values, op);
  }
  void all_reduce(std::span<std::int64_t> values, Reduce op) override {
    before_host_call();
    host_->all_reduce(values, op);
  }
  void broadcast(std::string& bytes, int root) override {
    before_host_call();
    host_->broadcast(bytes, root);
  }
  std::vector<std::string> gather(const std::string& bytes, int root) override {
    before_host_call();
    return host_->gather(bytes, root);
  }
  void barrier() override {
    before_host_call();
    host_->barrier();
  }

 protected:
  /// The host is going to wait for others, who may wait for what this rank owes in other groups.
  virtual void before_host_call() {}

  /// What is enqueued on the group's stream from now on sees all that the device was given so far.
  void follow_device() {
    Event here;
    here.record(device_.stream());
    here.hold_back(stream_);
  }

  std::unique_ptr<Communicator> host_;
  std::shared_ptr<CudaDevice> kept_;
  CudaDevice& device_;
  OwnedStream stream_;
};

std::unique_ptr<Communicator> make_staged_group(std::unique_ptr<Communicator> host,
                                                std::shared_ptr<CudaDevice> device);
/// Collective over the group. Throws Error where the build has no NCCL.
std::unique_ptr<Communicator> make_nccl_group(std::unique_ptr<Communicator> host,
                                              std::shared_ptr<CudaDevice> device,
                                              std::shared_ptr<Traffic> traffic, std::string name);

}  // namespace bdlm::cuda
