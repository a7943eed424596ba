// SPDX-License-Identifier: Apache-2.0
// A golden case: a batch and what training on it must give in float64, as an independent program
// computed it. golden.h5 holds
//   /rows/R: tokens [T], corrupted and weights [views, T], doc_lengths [documents], ar_weights [T]
//   attributes normalizer, ar_normalizer
//   /expected: loss, diffusion_loss, ar_loss, aux_loss, grad/TENSOR, trace/R/layer_L,
//              train/loss [steps], train/param/TENSOR
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/row.h"

namespace bdlm {

struct Golden {
  std::vector<CorruptedRow> rows;  // every token eligible: the normalizers below count instead
  std::int64_t normalizer = 0, ar_normalizer = 0;

  /// After division by the normalizers; loss is the weighted sum of the others.
  double loss = 0, diffusion_loss = 0, ar_loss = 0, aux_loss = 0;
  std::map<std::string, std::vector<double>> gradients;  // by the tensor's name on disk
  /// [row][layer]: the residual stream after the layer, [(1 + views) T, hidden]; NaN: no reader.
  std::vector<std::vector<std::vector<double>>> traces;

  /// Optimizer steps on the same batch: the loss before each, and the tensors after the last.
  std::vector<double> train_losses;
  std::map<std::string, std::vector<double>> train_parameters;
};

/// folder/golden.h5. The objective says how many views each row must have, and whether there is an
/// autoregressive term: without one, ar_weights stay empty.
Golden read_golden(const std::string& folder, const Objective& objective);

}  // namespace bdlm
