// SPDX-License-Identifier: Apache-2.0
// Times calls of a device's operations on random matrices: zeros would flatter products, which draw
// less power and clock higher on them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/kernel_bench.h"

namespace bdlm {

class KernelTimer {
 public:
  using Done = std::function<void(KernelTiming)>;
  KernelTimer(Device& on, bool is_quick, Done done)
      : device(on), quick(is_quick), done_(std::move(done)) {}

  Buffer random(std::int64_t rows, std::int64_t cols, DType dtype);
  Buffer zeros(std::int64_t rows, std::int64_t cols, DType dtype);
  /// Numbers in [0, below) in an order without a pattern; `distinct`: a permutation, below = count.
  std::vector<std::int32_t> numbers(std::int64_t count, std::int64_t below, bool distinct = false);

  /// Warms up, then calls for about 50 ms with one wait at the end, three times; the fastest
  /// counts. What it throws becomes the timing's error.
  void time(const std::string& operation, const std::string& shape, DType dtype, Work work,
            const std::function<void()>& call);
  /// Timings that share matrices. What throws before one of them stands as this operation's error.
  void group(const std::string& operation, const std::function<void()>& timings);

  Device& device;
  const bool quick;

 private:
  double seconds_of(const std::function<void()>& call);
  Done done_;
  std::vector<float> values_;  // of random matrices, made once
  std::uint64_t state_ = 1;
};

/// Bytes of a matrix.
inline double bytes_of(const Tensor& x) {
  return static_cast<double>(x.size()) * static_cast<double>(size_of(x.dtype));
}
template <class... Tensors>
double bytes_of(const Tensor& x, const Tensors&... more) {
  return bytes_of(x) + bytes_of(more...);
}

void time_movement(KernelTimer& timer);
void time_gemm(KernelTimer& timer);
void time_layers(KernelTimer& timer);
void time_mixtures(KernelTimer& timer);
void time_optimizer(KernelTimer& timer);
void time_attention(KernelTimer& timer);

}  // namespace bdlm
