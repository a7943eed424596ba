// SPDX-License-Identifier: Apache-2.0
// Tensors of the model against golden ones, without gathering them: every rank compares the elements
// that it owns.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/families.h"
#include "model/parameters.h"
#include "parallel/communicator.h"

namespace bdlm {

struct TensorComparison {
  std::string name;  // on disk
  double error = 0;  // norm of the difference over the larger of the tensor's norm and 1e-6 of all
                     // tensors' together
};
struct TensorsComparison {
  std::vector<TensorComparison> tensors;
  double norm = 0;  // of all values that were compared
};

/// values: of the parts of the local flat range that this rank owns, one after another. golden: by
/// the tensors' names on disk. Throws Error for a tensor that only one side has, and for one whose
/// elements are not owned exactly once in the world. Collective over the world.
TensorsComparison compare_owned(const ModelConfig& model, const ParameterLayout& local,
                                const std::vector<FlatRange>& parts,
                                const std::vector<double>& values,
                                const std::map<std::string, std::vector<double>>& golden,
                                Communicator& world);

}  // namespace bdlm
