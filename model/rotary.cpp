// SPDX-License-Identifier: Apache-2.0
// Frequencies and tables of rotary embedding. All in double: a float would lose the angle of a
// position in the hundred thousands.
#include "model/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace bdlm {
namespace {

/// Rows are added in steps of this many, so that slowly growing documents do not refill each time.
constexpr std::int64_t growth = 1024;

constexpr double two_pi = 2 * std::numbers::pi;

/// Channels that turn often within the original length keep their frequency, slow ones are
/// stretched by the factor, those between are blended linearly over the channel's index.
void scale_yarn(const RopeScaling& s, double theta, double dim, std::vector<double>& frequencies) {
  const auto channel_of = [&](double rotations) {
    return dim * std::log(s.original_max_position_embeddings / (rotations * two_pi)) /
           (2 * std::log(theta));
  };
  const double low = std::max(std::floor(channel_of(s.beta_fast)), 0.0);
  double high = std::min(std::ceil(channel_of(s.beta_slow)), dim - 1);
  if (low == high) high += 0.001;  // a step, not a division by zero
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] * (1 - ramp) + frequencies[i] / s.factor * ramp;
  }
}

/// The same idea by wavelength: blended between original / high and original / low.
void scale_llama3(const RopeScaling& s, std::vector<double>& frequencies) {
  const double original = s.original_max_position_embeddings;
  for (double& frequency : frequencies) {
    const double wavelength = two_pi / frequency;
    if (wavelength < original / s.high_freq_factor) continue;
    if (wavelength > original / s.low_freq_factor) {
      frequency /= s.factor;
      continue;
    }
    const double blend =
        (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    frequency = (1 - blend) * frequency / s.factor + blend * frequency;
  }
}

/// Computes the whole matrix in double and copies it to the device in its own dtype.
template <class T, class Value>
void fill_as(Device& device, Tensor target, Value value) {
  std::vector<T> host(static_cast<std::size_t>(target.size()));
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < target.rows; ++row) {
    for (std::int64_t col = 0; col < target.cols; ++col) {
      host[static_cast<std::size_t>(row * target.cols + col)] = static_cast<T>(value(row, col));
    }
  }
  device.copy_from_host(host.data(), target);
}

template <class Value>
Buffer make_table(Device& device, std::int64_t rows, std::int64_t cols, DType dtype, Value value) {
  Buffer out = device.allocate(rows, cols, dtype, Memory::workspace);
  if (dtype == DType::f64) {
    fill_as<double>(device, out, value);
  } else {
    fill_as<float>(device, out, value);
  }
  return out;
}

}  // namespace

std::vector<double> inverse_frequencies(const ModelConfig& config) {
  const auto dim = static_cast<double>(config.rotary_dim());
  std::vector<double> out(static_cast<std::size_t>(config.rotary_dim() / 2));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / dim);
  }
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.type == RopeType::yarn) scale_yarn(scaling, config.rope_theta, dim, out);
  if (scaling.type == RopeType::llama3) scale_llama3(scaling, out);
  return out;
}

double rotary_magnitude(const RopeScaling& scaling) {
  if (scaling.type != RopeType::yarn) return 1;
  const auto magnitude = [&](double s) { return 0.1 * s * std::log(scaling.factor) + 1; };
  if (scaling.mscale == 0 || scaling.mscale_all_dim == 0) return magnitude(1);
  return magnitude(scaling.mscale) / magnitude(scaling.mscale_all_dim);
}

double query_temperature(const RopeScaling& scaling, std::int64_t position) {
  if (scaling.llama_4_scaling_beta == 0) return 1;
  const double lengths =
      std::floor(static_cast<double>(position) / scaling.original_max_position_embeddings);
  return 1 + scaling.llama_4_scaling_beta * std::log1p(lengths);
}

RotaryCache::RotaryCache(Device& device, const ModelConfig& config, DType accumulate)
    : device_(device),
      scaling_(config.rope_scaling),
      frequencies_(inverse_frequencies(config)),
      dtype_(accumulate) {
  require(accumulate != DType::bf16, "rotary tables are kept in f32 or f64, not in {}",
          name_of(accumulate));
}

RotaryTable RotaryCache::table(std::int64_t positions) {
  if (positions > positions_) fill((positions + growth - 1) / growth * growth);
  return {cos_, sin_, temperature_};
}

void RotaryCache::fill(std::int64_t positions) {
  const auto half = static_cast<std::int64_t>(frequencies_.size());
  const double magnitude = rotary_magnitude(scaling_);
  const auto angle = [this](std::int64_t position, std::int64_t channel) {
    return static_cast<double>(position) * frequencies_[static_cast<std::size_t>(channel)];
  };
  cos_ = make_table(device_, positions, half, dtype_, [&](std::int64_t position, std::int64_t i) {
    return magnitude * std::cos(angle(position, i));
  });
  sin_ = make_table(device_, positions, half, dtype_, [&](std::int64_t position, std::int64_t i) {
    return magnitude * std::sin(angle(position, i));
  });
  if (scaling_.llama_4_scaling_beta > 0) {
    temperature_ = make_table(
        device_, 1, positions, dtype_,
        [&](std::int64_t, std::int64_t position) { return query_temperature(scaling_, position); });
  }
  positions_ = positions;
}

}  // namespace bdlm
