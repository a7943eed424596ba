// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernel_timer.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

namespace bdlm {
namespace {

std::uint64_t next(std::uint64_t& state) {  // xorshift64*
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1DULL;
}

}  // namespace

Buffer KernelTimer::random(std::int64_t rows, std::int64_t cols, DType dtype) {
  Buffer buffer = device.allocate(rows, cols, dtype, Memory::workspace);
  const Tensor all = buffer;
  // The host makes the first rows; the device doubles them.
  constexpr std::int64_t made = 1 << 22;
  std::int64_t filled = std::clamp<std::int64_t>(made / cols, 1, rows);
  while (values_.size() < static_cast<std::size_t>(filled * cols)) {
    double sum = -2;  // of four uniform numbers: nearly normal, variance 1/3
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(next(state_) >> 11) * 0x1p-53;
    values_.push_back(static_cast<float>(sum));
  }
  const Buffer first = device.allocate(filled, cols, DType::f32, Memory::workspace);
  device.copy_from_host(values_.data(), first);
  device.copy(first, all.slice_rows(0, filled));
  while (filled < rows) {
    const std::int64_t count = std::min(filled, rows - filled);
    device.copy(all.slice_rows(0, count), all.slice_rows(filled, count));
    filled += count;
  }
  device.synchronize();
  return buffer;
}

Buffer KernelTimer::zeros(std::int64_t rows, std::int64_t cols, DType dtype) {
  Buffer buffer = device.allocate(rows, cols, dtype, Memory::workspace);
  device.zero(buffer);
  return buffer;
}

std::vector<std::int32_t> KernelTimer::numbers(std::int64_t count, std::int64_t below,
                                               bool distinct) {
  std::vector<std::int32_t> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  if (!distinct)
    for (auto& r : result)
      r = static_cast<std::int32_t>(next(state_) % static_cast<std::uint64_t>(below));
  for (std::size_t i = result.size(); i-- > 1 && distinct;)
    std::swap(result[i], result[next(state_) % (i + 1)]);
  return result;
}

double KernelTimer::seconds_of(const std::function<void()>& call) {
  const auto timed = [&](std::int64_t calls) {
    device.synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < calls; ++i) call();
    device.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
           static_cast<double>(calls);
  };
  if (quick) return timed(1);
  call();  // libraries choose their algorithms, the pool gets its blocks
  const double once = timed(1);
  if (once > 0.5) return once;
  const auto calls = std::clamp<std::int64_t>(static_cast<std::int64_t>(0.05 / once), 1, 2000);
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) fastest = std::min(fastest, timed(calls));
  return fastest;
}

void KernelTimer::time(const std::string& operation, const std::string& shape, DType dtype,
                       Work work, const std::function<void()>& call) {
  KernelTiming timing{operation, shape, dtype, work, 0, ""};
  try {
    timing.seconds = seconds_of(call);
  } catch (const std::exception& error) {
    timing.error = error.what();
  }
  done_(std::move(timing));
}

void KernelTimer::group(const std::string& operation, const std::function<void()>& timings) {
  try {
    timings();
  } catch (const std::exception& error) {
    done_({operation, "not reached", DType::bf16, {}, 0, error.what()});
  }
}

}  // namespace bdlm
