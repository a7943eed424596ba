// SPDX-License-Identifier: Apache-2.0
// Launch functions of the memory-bound kernels, one .cu file a topic. They enqueue on a stream and
// return; shapes were checked by the caller (CudaDevice). T is double, float or bfloat16, sums are
// kept in sum_t<T>. All are deterministic: no floating-point atomics, sums in a fixed order.
// What an operation means is said in kernels/device.h, and in code in kernels/reference/.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/view.h"
#include "kernels/router.h"

namespace bdlm::cuda {

/// Reductions over rows leave one row of sums a block and add these in order. The caller gives the
/// memory: `partial` has at most this many rows (two blocks for each of an H200's 132 processors).
inline constexpr std::int64_t most_partials = 264;

// movement.cu: X and Y are any two of the types
template <class X, class Y>
void copy(Stream stream, View<const X> x, View<Y> y);
template <class X, class Y>
void add(Stream stream, View<const X> x, View<Y> y);
template <class T>
void gather_rows(Stream stream, View<const T> x, const std::int32_t* rows, View<T> y);
template <class X, class Y>
void scatter_add_rows(Stream stream, View<const X> x, const std::int32_t* rows, View<Y> y);
template <class X, class Y>
void add_gathered_rows(Stream stream, View<const X> x, const std::int32_t* places,
                       std::int64_t count, View<Y> y);

// bias.cu
template <class T>
void add_bias(Stream stream, View<const T> bias, View<T> y);
/// partial [<= most_partials, cols]
template <class T>
void bias_gradient(Stream stream, View<const T> dy, View<sum_t<T>> partial, View<sum_t<T>> dbias);

// embedding.cu (the forward pass is gather_rows)
/// order [n]: 0 .. n - 1 sorted by id, stable; group [n + 1 at most]: where in `order` each id's run
/// begins, then n. Both made by the host from the ids. dtable[id] += its rows of dy in order.
template <class T>
void embedding_backward(Stream stream, const std::int32_t* ids, const std::int32_t* order,
                        const std::int32_t* group, std::int64_t groups, View<const T> dy,
                        View<sum_t<T>> dtable);

// rms_norm.cu: X, of the residual stream, is T or sum_t<T>
template <class T, class X>
void rms_norm_forward(Stream stream, View<const X> x, View<const T> weight, double eps, View<T> y,
                      View<sum_t<T>> rstd);
/// dx +=, dweight +=; partial [<= most_partials, cols]
template <class T, class X>
void rms_norm_backward(Stream stream, View<const X> x, View<const T> weight,
                       View<const sum_t<T>> rstd, View<const T> dy, View<X> dx,
                       View<sum_t<T>> partial, View<sum_t<T>> dweight);

// head_rotary.cu
template <class T>
struct HeadRotaryArgs {
  std::int64_t heads = 0, head_dim = 0;
  const T* norm_weight = nullptr;  // [head_dim]; null: no norm
  double norm_eps = 0;
  const std::int32_t* positions = nullptr;                 // [rows]
  View<const sum_t<T>> cos, sin;                           // [positions, rotary_dim / 2]
  const sum_t<T>* temperature = nullptr;                   // [positions]; null: 1
};
template <class T>
void head_rotary_forward(Stream stream, const HeadRotaryArgs<T>& args, View<const T> x, View<T> y,
                         View<sum_t<T>> rstd);
/// D is T or sum_t<T>. partial [<= most_partials, head_dim], used when there is a norm.
template <class T, class D>
void head_rotary_backward(Stream stream, const HeadRotaryArgs<T>& args, View<const T> x,
                          View<const sum_t<T>> rstd, View<const D> dy, View<T> dx,
                          View<sum_t<T>> partial, View<sum_t<T>> dweight);

// swiglu.cu
/// weight [rows, 1]; empty: 1
template <class T>
void swiglu_forward(Stream stream, View<const T> gate_up, View<const sum_t<T>> weight, View<T> y);
template <class T>
void swiglu_backward(Stream stream, View<const T> gate_up, View<const T> dy, View<T> dgate_up);

// weighted_swiglu.cu
template <class T>
void weighted_swiglu_backward(Stream stream, View<const T> gate_up, View<const sum_t<T>> weight,
                              View<const T> dy, View<T> dgate_up, View<sum_t<T>> dweight,
                              View<T> y);

// router.cu: A is float or double
/// chosen [rows * k], on the device; null: probabilities only. bias may be null.
template <class A>
void choose_experts(Stream stream, const Router& router, View<const A> logits, const A* bias,
                    View<A> probabilities, std::int32_t* chosen);

// router_weights.cu
template <class A>
void expert_weights(Stream stream, const Router& router, View<const A> probabilities,
                    const std::int32_t* chosen, View<A> weights);
/// Pieces of the rows that are added up apart.
std::int64_t balance_slices(std::int64_t rows);
/// partial [packed rows * balance_slices(rows), 2 E]
template <class A>
void balance_sums(Stream stream, const Router& router, View<const A> probabilities,
                  const std::int32_t* chosen, const std::int32_t* packed, View<A> partial,
                  View<A> sums);
/// balance may be empty.
template <class A>
void router_backward(Stream stream, const Router& router, View<const A> probabilities,
                     const std::int32_t* chosen, View<const A> dweights, View<const A> balance,
                     const std::int32_t* packed, View<A> dlogits);

// cross_entropy.cu
template <class T>
void cross_entropy(Stream stream, View<const sum_t<T>> logits, const std::int32_t* targets,
                   View<const sum_t<T>> weight, std::int64_t excluded, View<sum_t<T>> loss,
                   View<T> dlogits);
/// The parts of cross_entropy for a vocabulary that is split over ranks. A is float or double.
template <class A>
void cross_entropy_statistics(Stream stream, View<const A> logits, std::int64_t first,
                              const std::int32_t* targets, std::int64_t excluded,
                              View<A> statistics);
template <class A>
void merge_cross_entropy(Stream stream, View<const A> parts, View<A> statistics, View<A> loss);
template <class T>
void cross_entropy_gradient(Stream stream, View<const sum_t<T>> logits, std::int64_t first,
                            const std::int32_t* targets, View<const sum_t<T>> weight,
                            std::int64_t excluded, View<const sum_t<T>> statistics,
                            View<T> dlogits);

// optimizer.cu
/// result[0] = sum of squares; partial [most_partials]
template <class A>
void squared_norm(Stream stream, View<const A> x, double* partial, double* result);
struct AdamWArgs {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  double correction1 = 1, correction2 = 1;  // 1 - beta^step
  double gradient_scale = 1;
};
/// Runs of elements that decay or do not: run r is [begin[r], begin[r + 1]), begin [runs + 1] on
/// the device; decay[r] is 0 or 1. One launch for all of them. compute may alias master.
template <class T>
void adamw(Stream stream, const AdamWArgs& args, const std::int64_t* begin,
           const std::uint8_t* decay, std::int64_t runs, View<sum_t<T>> master,
           View<const sum_t<T>> gradient, View<sum_t<T>> first, View<sum_t<T>> second,
           View<T> compute);

// noise.cu: see kernels/philox.h; out[i] = uniform(a, b0 + i), the numbers of the host to the bit
void philox_uniform(Stream stream, std::uint32_t key0, std::uint32_t key1, std::uint64_t a,
                    std::uint64_t b0, View<double> out);

}  // namespace bdlm::cuda
