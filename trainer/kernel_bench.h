// SPDX-License-Identifier: Apache-2.0
// Every operation of kernels/device.h at the shapes of 3B transformers and of a mixture of experts, against its floor: the
// bytes that it must move over the memory's bandwidth, or its FLOPs over the peak of products,
// whichever takes longer. The device's own copy and product are timed first: ratios within one run
// hold on machines whose clocks drift.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace bdlm {

/// What an operation cannot do without. Inputs and outputs count once, what is added to twice.
struct Work {
  double bytes = 0, flops = 0;
};

struct KernelTiming {
  std::string operation, shape;
  DType dtype = DType::bf16;
  Work work;
  double seconds = 0;  // a call
  std::string error;   // why there is no time; empty: there is one
};

/// Bytes and FLOPs a second.
struct Rates {
  double bandwidth = 4.3e12, flops = 790e12;  // measured on an H200: copy, bf16 product
  double seconds(const Work& work) const;     // of the floor
};

struct KernelBench {
  std::string device;
  Rates given, own;  // own: of the device in this run
  std::vector<KernelTiming> timings;
};

/// quick: tiny shapes, one call each; shows that every operation runs, not how fast.
/// `done` is told of every timing as it is there, with the rates known by then.
KernelBench bench_kernels(Device& device, const Rates& given, bool quick,
                          const std::function<void(const KernelTiming&, const KernelBench&)>& done);

std::string kernel_bench_json(const KernelBench& bench);

}  // namespace bdlm
