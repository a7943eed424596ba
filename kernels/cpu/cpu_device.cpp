// SPDX-License-Identifier: Apache-2.0
// Construction of the CPU backend, and the reduction helpers that several operations share.
#include "kernels/cpu/cpu_device.h"

#include <omp.h>

#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/product_cache.h"

namespace bdlm {

CpuDevice::CpuDevice(int threads)
    : threads_(threads), products_(std::make_unique<ProductCache>()) {}

CpuDevice::~CpuDevice() = default;

std::string CpuDevice::name() const {
  return fmt::format("cpu, {} thread{}", threads_, threads_ == 1 ? "" : "s");
}

Buffer CpuDevice::partial_sums(int parts, std::int64_t cols, DType dtype) {
  Buffer partials = allocate(parts, cols, dtype, Memory::workspace);
  zero(partials);
  return partials;
}

void CpuDevice::add_partials(const Tensor& partials, const Tensor& target) {
  for (std::int64_t part = 0; part < partials.rows; ++part) {
    add(partials.slice_rows(part, 1), target);
  }
}

std::unique_ptr<Device> make_cpu_device(int threads) {
  require(threads >= 0, "a CPU device of {} threads is not possible; give 0 for the default",
          threads);
  // omp_get_max_threads is OMP_NUM_THREADS or, without it, the processors that this process may
  // use.
  return std::make_unique<CpuDevice>(threads > 0 ? threads : std::max(1, omp_get_max_threads()));
}

}  // namespace bdlm
