// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3" (SC 2011). The same (key, counter) gives the same numbers on every rank and device.
#pragma once

#include <array>
#include <cstdint>

namespace bdlm {

/// What a random number is for. Part of the key, so that two uses never share a stream.
/// The values reach checkpoints through the noise that they make: permanent.
enum class RandomPurpose : std::uint32_t {
  initial_weights = 1,
  noise_level = 2,
  noise_token = 3,
  replacement_token = 4,
  document_order = 5,
  block_order = 6,
  sampling = 7,
  blend = 8,
};

class Philox {
 public:
  Philox(std::uint64_t seed, RandomPurpose purpose)
      : key_{static_cast<std::uint32_t>(seed) ^ (static_cast<std::uint32_t>(purpose) * 0x85ebca6bu),
             static_cast<std::uint32_t>(seed >> 32) + static_cast<std::uint32_t>(purpose)} {}

  /// Four independent 32-bit numbers for the counter (a, b): a and b are logical ids such as an
  /// optimizer step, a packed row, a token. No state is kept.
  std::array<std::uint32_t, 4> bits(std::uint64_t a, std::uint64_t b) const {
    std::array<std::uint32_t, 4> c{
        static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32),
        static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32)};
    std::uint32_t k0 = key_[0], k1 = key_[1];
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = 0xd2511f53ull * c[0], p1 = 0xcd9e8d57ull * c[2];
      c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
           static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
      k0 += 0x9e3779b9u;
      k1 += 0xbb67ae85u;
    }
    return c;
  }

  /// Uniform in [0, 1), 53 bits.
  double uniform(std::uint64_t a, std::uint64_t b) const {
    const auto r = bits(a, b);
    const std::uint64_t wide = (static_cast<std::uint64_t>(r[0]) << 32) | r[1];
    return static_cast<double>(wide >> 11) * 0x1.0p-53;
  }

  /// Uniform integer in [0, n), n > 0: the high part of a 64 x 64 bit product.
  std::uint64_t below(std::uint64_t n, std::uint64_t a, std::uint64_t b) const {
    const auto r = bits(a, b);
    const std::uint64_t wide = (static_cast<std::uint64_t>(r[0]) << 32) | r[1];
    __extension__ using wide_product = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<wide_product>(wide) * n) >> 64);
  }

 private:
  std::array<std::uint32_t, 2> key_;
};

}  // namespace bdlm
