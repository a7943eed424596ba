// SPDX-License-Identifier: Apache-2.0
// Names of purposes, as they appear in reports.
#include "parallel/communicator.h"

namespace bdlm {

const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::exchange_forward:
      return "exchange_forward";
    case Purpose::exchange_recompute:
      return "exchange_recompute";
    case Purpose::exchange_gradient:
      return "exchange_gradient";
    case Purpose::tensor_rows:
      return "tensor_rows";
    case Purpose::pipeline_rows:
      return "pipeline_rows";
    case Purpose::expert_rows:
      return "expert_rows";
    case Purpose::gradient_reduce:
      return "gradient_reduce";
    case Purpose::parameter_gather:
      return "parameter_gather";
    case Purpose::control:
      return "control";
  }
  return "unknown";
}

}  // namespace bdlm
