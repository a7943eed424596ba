// SPDX-License-Identifier: Apache-2.0
// The devices that the operations are tested on: BDLM_TEST_DEVICES, a comma list of cpu (with one
// thread and with three), emu and cuda; cpu where it is not set.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/kernels/matrices.h"

namespace bdlm::test {

/// body(device) on every device. Test matrices made in there lie in memory that it can reach.
void on_devices(const std::function<void(Device&)>& body);

/// body.operator()<T>(device) on every device for every dtype.
template <class Body>
void on_all(Body&& body) {
  on_devices([&](Device& device) {
    for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
      dispatch(type, [&]<class T>() { body.template operator()<T>(device); });
    }
  });
}

/// `shapes`, with a smaller last one where the device is emulated.
std::vector<Shape> device_shapes();

/// Device memory with these numbers; `host` must outlive it.
template <class T>
DeviceList<T> upload(Device& device, const std::vector<T>& host) {
  return device.upload(std::span<const T>(host));
}

}  // namespace bdlm::test
