// SPDX-License-Identifier: Apache-2.0
// The evaluation bound: the NELBO a token over the evaluation file, with the unclipped schedule.
#pragma once

#include <cstdint>
#include <functional>

#include "data/source.h"
#include "trainer/engine.h"

namespace bdlm {

struct Evaluation {
  double nelbo = 0;  // nats a token: an upper bound on the negative log-likelihood
  std::int64_t rows = 0, tokens = 0;
  double perplexity() const;     // exp(nelbo), a bound
  double bits_per_token() const;
};

/// What is evaluated whatever is trained: one view, t over all of (0, 1], weight p'/p, corrupted
/// tokens scored, no autoregressive term. With block_size 1 every token is masked with weight 1,
/// which is the integral itself: the autoregressive perplexity.
Objective evaluation_objective(const Objective& trained);

/// `rows` packed rows of the source, each under `draws` noises. The same number on every topology.
/// Collective over the world. `progress` hears of rows done of rows in all.
Evaluation evaluate(Engine& engine, const RunConfig& config, const DataSource& source,
                    std::int64_t rows, std::int64_t draws,
                    const std::function<void(std::int64_t, std::int64_t)>& progress = {});

}  // namespace bdlm
