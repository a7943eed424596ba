// SPDX-License-Identifier: Apache-2.0
// Random numbers of the device are those of the host.
#include "kernels/philox.h"
#include "tests/kernels/cuda/launches.h"

using namespace bdlm;
using namespace bdlm::test;
using cuda::view;

TEST_CASE("cuda noise: philox_uniform is the host's to the bit") {
  const std::uint64_t seed = 0x123456789abcdef1ull, a = 0xfedcba9876543210ull;
  const auto purpose = RandomPurpose::noise_token;
  const Philox host(seed, purpose);
  const auto key0 =
      static_cast<std::uint32_t>(seed) ^ (static_cast<std::uint32_t>(purpose) * 0x85ebca6bu);
  const auto key1 = static_cast<std::uint32_t>(seed >> 32) + static_cast<std::uint32_t>(purpose);
  const std::uint64_t b0 = 0xffffff80ull;  // the low word of the counter wraps
  for (const Shape& s : {Shape{0, 5, 0}, Shape{1, 1, 0}, Shape{3, 301, 2}}) {
    TestMatrix out(DType::f64, s.rows, s.cols, s.padding);
    cuda::philox_uniform(nullptr, key0, key1, a, b0, view<double>(out));
    wait();
    bool same = out.padding_untouched();
    for (std::int64_t i = 0; i < s.rows; ++i) {
      for (std::int64_t j = 0; j < s.cols; ++j) {
        const auto at = static_cast<std::uint64_t>(i * s.cols + j);
        same = same && out.get(i, j) == host.uniform(a, b0 + at);
      }
    }
    CHECK(same);
  }
}
