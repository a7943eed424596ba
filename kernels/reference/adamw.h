// SPDX-License-Identifier: Apache-2.0
// Plain definition: one AdamW step, Algorithm 2 of arXiv 1711.05101.
#pragma once

#include <cmath>

#include "kernels/device.h"
#include "kernels/reference/matrix.h"

namespace bdlm::reference {

template <class A>
void adamw(const AdamW& args, const std::vector<DecayRun>& runs, const Matrix<A>& gradient,
           Matrix<A>& master, Matrix<A>& first, Matrix<A>& second) {
  const A beta1 = A(args.beta1), beta2 = A(args.beta2);
  const A correction1 = A(1) - std::pow(beta1, A(args.step));
  const A correction2 = A(1) - std::pow(beta2, A(args.step));
  for (const DecayRun& run : runs) {
    for (std::int64_t i = run.begin; i < run.begin + run.count; ++i) {
      const A g = gradient(0, i) * A(args.gradient_scale);
      first(0, i) = beta1 * first(0, i) + (A(1) - beta1) * g;
      second(0, i) = beta2 * second(0, i) + (A(1) - beta2) * g * g;
      const A mean = first(0, i) / correction1;
      const A spread = std::sqrt(second(0, i) / correction2);
      const A decay = run.decay ? A(args.weight_decay) * master(0, i) : A(0);
      master(0, i) -= A(args.lr) * (mean / (spread + A(args.eps)) + decay);
    }
  }
}

}  // namespace bdlm::reference
