// SPDX-License-Identifier: Apache-2.0
// Cross-entropy, the gradient's norm, AdamW.
#include <cmath>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/tensor_view.h"

namespace bdlm::cuda {

void CudaDevice::cross_entropy(Tensor logits, const std::int32_t* targets, Tensor weight,
                               std::int64_t excluded, Tensor loss, Tensor dlogits) {
  check_cross_entropy(logits, weight, excluded, loss, dlogits);
  if (logits.empty()) return;
  dispatch(dlogits.dtype, [&]<class T>() {
    using A = sum_t<T>;
    cuda::cross_entropy<T>(stream_, view<const A>(logits), targets, view<const A>(weight), excluded,
                           view<A>(loss), view<T>(dlogits));
  });
}

void CudaDevice::cross_entropy_statistics(Tensor logits, std::int64_t first,
                                          const std::int32_t* targets, std::int64_t excluded,
                                          Tensor statistics) {
  check_cross_entropy_statistics(logits, first, statistics);
  if (logits.rows == 0) return;
  dispatch_sums(logits.dtype, [&]<class A>() {
    // Rows without ids have statistics too.
    const View<const A> in = logits.cols > 0 ? view<const A>(logits)
                                             : View<const A>{nullptr, logits.rows, 0, 0};
    cuda::cross_entropy_statistics<A>(stream_, in, first, targets, excluded, view<A>(statistics));
  });
}

void CudaDevice::merge_cross_entropy(Tensor parts, Tensor statistics, Tensor loss) {
  check_merge_cross_entropy(parts, statistics, loss);
  if (loss.rows == 0) return;
  dispatch_sums(loss.dtype, [&]<class A>() {
    cuda::merge_cross_entropy<A>(stream_, view<const A>(parts), view<A>(statistics),
                                 view<A>(loss));
  });
}

void CudaDevice::cross_entropy_gradient(Tensor logits, std::int64_t first,
                                        const std::int32_t* targets, Tensor weight,
                                        std::int64_t excluded, Tensor statistics,
                                        Tensor dlogits) {
  check_cross_entropy_gradient(logits, first, weight, statistics, dlogits);
  if (logits.empty()) return;
  dispatch(dlogits.dtype, [&]<class T>() {
    using A = sum_t<T>;
    cuda::cross_entropy_gradient<T>(stream_, view<const A>(logits), first, targets,
                                    view<const A>(weight), excluded, view<const A>(statistics),
                                    view<T>(dlogits));
  });
}

double CudaDevice::squared_norm(Tensor x) {
  if (x.empty()) return 0;
  const Buffer sums = scratch(1, most_partials + 1, DType::f64);
  double* const partial = sums.tensor().as<double>();
  double* const result = partial + most_partials;
  dispatch(x.dtype, [&]<class T>() {
    cuda::squared_norm<T>(stream_, view<const T>(x), partial, result);
  });
  double host = 0;
  fetch(result, &host, sizeof host);
  return host;
}

void CudaDevice::adamw(const AdamW& args, const DecayRuns& runs, Tensor master,
                       Tensor gradient, Tensor first, Tensor second, Tensor compute) {
  check_adamw(args, runs.runs, master, gradient, first, second, compute);
  if (master.empty()) return;
  const auto step = static_cast<double>(args.step);
  const AdamWArgs constants{args.lr,
                            args.beta1,
                            args.beta2,
                            args.eps,
                            args.weight_decay,
                            1 - std::pow(args.beta1, step),
                            1 - std::pow(args.beta2, step),
                            args.gradient_scale};
  dispatch(compute.dtype, [&]<class T>() {
    using A = sum_t<T>;
    cuda::adamw<T>(stream_, constants, runs.begin.data, runs.decay.data, runs.decay.count,
                   view<A>(master), view<const A>(gradient), view<A>(first), view<A>(second),
                   view<T>(compute));
  });
}

}  // namespace bdlm::cuda
