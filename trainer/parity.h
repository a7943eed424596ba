// SPDX-License-Identifier: Apache-2.0
// A golden case run through the trainer's own step, on this launch's topology, against what the
// oracle computed: losses, gradients, residual streams, trained parameters, and the bytes that
// travelled against the plan.
#pragma once

#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "trainer/run_config.h"

namespace bdlm {

struct ParityLine {
  std::string what;
  double error = 0;      // relative
  double tolerance = 0;  // error above it, or not a number: failed
  bool passed() const { return error <= tolerance; }
};

struct ParityTolerance {
  double values = 0;   // loss, gradients, residual streams
  double trained = 0;  // parameters after the optimizer steps: AdamW amplifies rounding
};
/// What a dtype allows: 1e-10 and 1e-8 in float64.
ParityTolerance default_tolerance(DType dtype);

struct ParityReport {
  std::vector<ParityLine> lines;
  bool passed() const;
};

/// The run file of a golden folder: its run.yaml, the model beside it, float64, `overrides` on top.
RunConfig golden_config(const std::string& folder, const std::vector<std::string>& overrides,
                        int world);

/// Collective over the world; the same report on every rank.
ParityReport check_parity(const std::string& folder, const RunConfig& config,
                          const ParityTolerance& tolerance);

}  // namespace bdlm
