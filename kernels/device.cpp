// SPDX-License-Identifier: Apache-2.0
// What all devices share: buffers and the names of the kinds of memory.
#include "kernels/device.h"

namespace bdlm {

const char* name_of(Memory kind) {
  switch (kind) {
    case Memory::parameters:
      return "parameters";
    case Memory::gradients:
      return "gradients";
    case Memory::optimizer:
      return "optimizer";
    case Memory::activations:
      return "activations";
    case Memory::exchange:
      return "exchange";
    case Memory::workspace:
      return "workspace";
  }
  return "unknown";
}

Buffer::~Buffer() {
  if (tensor_.data) device_->release(tensor_.data, bytes_, kind_);
}

Buffer Device::allocate(std::int64_t rows, std::int64_t cols, DType dtype, Memory kind) {
  require(rows >= 0 && cols >= 0, "a buffer of {} rows and {} columns cannot be allocated", rows,
          cols);
  const auto bytes = static_cast<std::size_t>(rows * cols) * size_of(dtype);
  return Buffer(this, {acquire(bytes, kind), rows, cols, cols, dtype}, bytes, kind);
}

DecayRuns Device::upload_decay(std::vector<DecayRun> runs) {
  DecayRuns lists;
  if (!shares_host_memory()) {
    std::vector<std::int64_t> begin;
    std::vector<std::uint8_t> decay;
    for (const DecayRun& run : runs) {
      begin.push_back(run.begin);
      decay.push_back(run.decay);
    }
    begin.push_back(runs.empty() ? 0 : runs.back().begin + runs.back().count);
    lists.begin = upload(std::span<const std::int64_t>(begin));
    lists.decay = upload(std::span<const std::uint8_t>(decay));
  }
  lists.runs = std::move(runs);
  return lists;
}

}  // namespace bdlm
