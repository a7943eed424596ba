// SPDX-License-Identifier: Apache-2.0
// The objective of a block diffusion language model as a value: what is corrupted, what is scored.
// Section `objective:` of a run file; docs/objectives.md explains every key.
#pragma once

#include <cstdint>
#include <string>

namespace bdlm {

enum class CleanAttention : std::uint8_t { block_causal, causal };
enum class Corruption : std::uint8_t { mask, uniform };
enum class NoiseLevel : std::uint8_t { stratified, independent };
enum class Granularity : std::uint8_t { block, sequence };
enum class NoiseSchedule : std::uint8_t { linear, cosine, square, square_root, logarithmic };
enum class Views : std::uint8_t { one, complementary };
enum class LossWeight : std::uint8_t { nelbo, none };
enum class Scored : std::uint8_t { corrupted, eligible };
enum class Normalize : std::uint8_t { eligible, masked, sequence };
enum class ArNormalize : std::uint8_t { own, shared };

struct Objective {
  std::int64_t block_size = 32;  // tokens
  CleanAttention clean_attention = CleanAttention::block_causal;
  std::int64_t mask_token_id = -1;  // never occurs in data
  Corruption corruption = Corruption::mask;
  NoiseLevel level = NoiseLevel::stratified;
  Granularity granularity = Granularity::block;
  double range_low = 1e-3, range_high = 1;  // t = low + (high - low) v
  NoiseSchedule schedule = NoiseSchedule::linear;
  Views views = Views::one;
  LossWeight weight = LossWeight::nelbo;
  Scored scored = Scored::corrupted;
  int target_shift = 0;            // 0: position i predicts token i; 1: position i - 1 does
  bool exclude_mask_token = true;  // the mask id is no possible answer
  Normalize normalize = Normalize::eligible;
  double diffusion_loss_weight = 1;
  double ar_loss_weight = 0;  // > 0 adds next-token cross-entropy on the clean copy
  ArNormalize ar_normalize = ArNormalize::own;
  double router_aux_loss_coef = 0;

  std::int64_t view_count() const { return views == Views::complementary ? 2 : 1; }
  bool autoregressive() const { return ar_loss_weight != 0; }
};

/// Chance p(t) that a token is corrupted at level t in [0, 1], and the NELBO weight p'(t) / p(t).
/// Schedules of BD3-LM (arXiv 2503.09573, appendix).
struct NoiseProbability {
  double p = 0, weight = 0;
};
NoiseProbability noise_probability(NoiseSchedule schedule, double t);

}  // namespace bdlm
