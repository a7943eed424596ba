// SPDX-License-Identifier: Apache-2.0
// AdamW on flat ranges and the norm for gradient clipping.
#include <cmath>
#include <vector>

#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"

namespace bdlm {
namespace {

/// The step's constants, computed once in double.
template <class A>
struct AdamWConstants {
  A beta1, beta2, rest1, rest2, rate, correction, eps, gradient_scale;

  explicit AdamWConstants(const AdamW& args)
      : beta1(static_cast<A>(args.beta1)),
        beta2(static_cast<A>(args.beta2)),
        rest1(static_cast<A>(1 - args.beta1)),
        rest2(static_cast<A>(1 - args.beta2)),
        rate(static_cast<A>(args.lr / (1 - power(args.beta1, args.step)))),
        correction(static_cast<A>(1 / std::sqrt(1 - power(args.beta2, args.step)))),
        eps(static_cast<A>(args.eps)),
        gradient_scale(static_cast<A>(args.gradient_scale)) {}

  static double power(double beta, std::int64_t step) {
    return std::pow(beta, static_cast<double>(step));
  }
};

template <class A, class T>
void adamw_elements(const AdamWConstants<A>& c, A decay, A* master, const A* gradient, A* first,
                    A* second, T* compute, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const A g = gradient[i] * c.gradient_scale;
    const A m = c.beta1 * first[i] + c.rest1 * g;
    const A v = c.beta2 * second[i] + c.rest2 * g * g;
    const A change = c.rate * m / (std::sqrt(v) * c.correction + c.eps);
    // Not master * (1 - decay): in float the rounding of 1 - decay is a percent of the decay.
    const A updated = master[i] - (decay * master[i] + change);
    first[i] = m;
    second[i] = v;
    master[i] = updated;
    store(compute[i], updated);
  }
}

}  // namespace

double CpuDevice::squared_norm(Tensor x) {
  if (x.empty()) return 0;
  if (x.contiguous()) x = x.reshape(1, x.size());
  // Pieces of fixed size, added in order: the sum does not depend on the number of threads.
  constexpr std::int64_t piece = 16384;
  const std::int64_t pieces = (x.cols + piece - 1) / piece;
  std::vector<double> sums(static_cast<std::size_t>(x.rows * pieces));
  dispatch(x.dtype, [&]<class T>() {
    const Rows<T> rows(x);
    parallel_ranges(threads_, x.rows * pieces, x.size(),
                    [&](int, std::int64_t first, std::int64_t last) {
                      for (std::int64_t p = first; p < last; ++p) {
                        const std::int64_t begin = p % pieces * piece;
                        const std::int64_t end = std::min(begin + piece, x.cols);
                        const T* in = rows[p / pieces];
                        double sum = 0;
#pragma omp simd reduction(+ : sum)
                        for (std::int64_t j = begin; j < end; ++j) {
                          const auto value = static_cast<double>(load(in[j]));
                          sum += value * value;
                        }
                        sums[static_cast<std::size_t>(p)] = sum;
                      }
                    });
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

void CpuDevice::adamw(const AdamW& args, const DecayRuns& runs, Tensor master,
                      Tensor gradient, Tensor first, Tensor second, Tensor compute) {
  const std::int64_t n = master.cols;
  check_adamw(args, runs.runs, master, gradient, first, second, compute);
  dispatch(compute.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const AdamWConstants<A> constants(args);
    A* p = master.as<A>();
    const A* g = gradient.as<A>();
    A* m = first.as<A>();
    A* v = second.as<A>();
    T* out = compute.as<T>();
    const A decay = static_cast<A>(args.lr * args.weight_decay);
    parallel_elements(threads_, 1, n, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
      for (const DecayRun& run : runs.runs) {
        const std::int64_t from = std::max(begin, run.begin);
        const std::int64_t to = std::min(end, run.begin + run.count);
        if (from >= to) continue;
        adamw_elements(constants, run.decay ? decay : A(0), p + from, g + from, m + from, v + from,
                       out + from, to - from);
      }
    });
  });
}

}  // namespace bdlm
