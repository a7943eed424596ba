// SPDX-License-Identifier: Apache-2.0
// QK-norm, rotary embedding (Su et al., arXiv 2104.09864) and query temperature in one pass.
#include <cmath>

#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"

namespace bdlm {
namespace {

void check_positions(const HeadRotary& args, std::int64_t rows) {
  const RotaryTable& table = args.table;
  if (!table.cos.empty())
    require_indices("head_rotary: positions", args.positions, rows, table.cos.rows);
  if (!table.temperature.empty())
    require_indices("head_rotary: positions", args.positions, rows, table.temperature.cols);
}

/// cos, sin and temperature of a row.
template <class A>
struct Rotation {
  const A* cos = nullptr;
  const A* sin = nullptr;
  std::int64_t half = 0;
  A temperature = 1;

  Rotation(const HeadRotary& args, std::int64_t row) {
    const RotaryTable& table = args.table;
    if (!table.cos.empty()) {
      cos = Rows<A>(table.cos)[args.positions[row]];
      sin = Rows<A>(table.sin)[args.positions[row]];
      half = table.cos.cols;
    }
    if (!table.temperature.empty()) {
      temperature = table.temperature.as<A>()[args.positions[row]];
    }
  }
};

template <bool norm, class T, class A>
void rotate(const T* x, const T* weight, A rstd, const Rotation<A>& r, std::int64_t head_dim,
            T* y) {
  const auto value = [=](std::int64_t i) {
    if constexpr (norm) return load(x[i]) * rstd * load(weight[i]);
    return load(x[i]);
  };
  // y may be x: an iteration reads what it writes, and no other iteration does.
#pragma omp simd
  for (std::int64_t i = 0; i < r.half; ++i) {
    const A a = value(i), b = value(i + r.half);
    store(y[i], (a * r.cos[i] - b * r.sin[i]) * r.temperature);
    store(y[i + r.half], (b * r.cos[i] + a * r.sin[i]) * r.temperature);
  }
#pragma omp simd
  for (std::int64_t i = 2 * r.half; i < head_dim; ++i) store(y[i], value(i) * r.temperature);
}

/// The transposed rotation.
template <class D, class A>
void rotate_back(const D* dy, const Rotation<A>& r, std::int64_t head_dim, A* g) {
#pragma omp simd
  for (std::int64_t i = 0; i < r.half; ++i) {
    const A a = load(dy[i]), b = load(dy[i + r.half]);
    g[i] = (a * r.cos[i] + b * r.sin[i]) * r.temperature;
    g[i + r.half] = (b * r.cos[i] - a * r.sin[i]) * r.temperature;
  }
#pragma omp simd
  for (std::int64_t i = 2 * r.half; i < head_dim; ++i) g[i] = load(dy[i]) * r.temperature;
}

template <class T, class A>
A norm_scale(const T* x, std::int64_t count, double eps) {
  A squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < count; ++i) squares += load(x[i]) * load(x[i]);
  return A(1) / std::sqrt(squares / static_cast<A>(count) + static_cast<A>(eps));
}

/// dx of y = x rstd weight from g = dy; adds to dweight.
template <class T, class A>
void norm_back(const T* x, const T* weight, A rstd, const A* g, std::int64_t count, T* dx,
               A* dweight) {
  A dot = 0;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t i = 0; i < count; ++i) dot += load(x[i]) * load(weight[i]) * g[i];
  const A mean = dot * rstd / static_cast<A>(count);
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const A normed = load(x[i]) * rstd;
    store(dx[i], rstd * (load(weight[i]) * g[i] - normed * mean));
    dweight[i] += normed * g[i];
  }
}

template <class T, class D>
void backward_rows(const HeadRotary& args, const Tensor& x, const Tensor& rstd, const Tensor& dy,
                   const Tensor& dx, std::int64_t first, std::int64_t last, accumulate_t<T>* g,
                   accumulate_t<T>* dweight) {
  using A = accumulate_t<T>;
  const Rows<D> gradients(dy);
  const Rows<T> outputs(dx);
  const bool norm = !args.norm_weight.empty();
  const T* weight = norm ? args.norm_weight.as<T>() : nullptr;
  const T* inputs = norm ? x.as<T>() : nullptr;
  const A* scales = norm ? rstd.as<A>() : nullptr;
  for (std::int64_t row = first; row < last; ++row) {
    const Rotation<A> rotation(args, row);
    for (std::int64_t head = 0; head < args.heads; ++head) {
      const std::int64_t offset = head * args.head_dim;
      rotate_back(gradients[row] + offset, rotation, args.head_dim, g);
      T* out = outputs[row] + offset;
      if (norm) {
        norm_back(inputs + row * x.stride + offset, weight, scales[row * rstd.stride + head], g,
                  args.head_dim, out, dweight);
      } else {
#pragma omp simd
        for (std::int64_t i = 0; i < args.head_dim; ++i) store(out[i], g[i]);
      }
    }
  }
}

}  // namespace

void CpuDevice::head_rotary_forward(const HeadRotary& args, Tensor x, Tensor y, Tensor rstd) {
  check_head_rotary(args, x, y, rstd);
  check_positions(args, x.rows);
  const bool norm = !args.norm_weight.empty();
  dispatch(x.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const Rows<T> from(x), to(y);
    const T* weight = norm ? args.norm_weight.as<T>() : nullptr;
    A* scales = norm ? rstd.as<A>() : nullptr;
    parallel_ranges(threads_, x.rows, x.size(), [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        const Rotation<A> rotation(args, row);
        for (std::int64_t head = 0; head < args.heads; ++head) {
          const T* in = from[row] + head * args.head_dim;
          T* out = to[row] + head * args.head_dim;
          if (norm) {
            const A scale = norm_scale<T, A>(in, args.head_dim, args.norm_eps);
            scales[row * rstd.stride + head] = scale;
            rotate<true, T, A>(in, weight, scale, rotation, args.head_dim, out);
          } else {
            rotate<false, T, A>(in, weight, 1, rotation, args.head_dim, out);
          }
        }
      }
    });
  });
}

void CpuDevice::head_rotary_backward(const HeadRotary& args, Tensor x, Tensor rstd, Tensor dy,
                                     Tensor dx, Tensor dweight) {
  const DType sum_type = accumulate_type(dx.dtype);
  const bool norm = !args.norm_weight.empty();
  check_head_rotary_gradient(args, x, rstd, dy, dx, dweight);
  check_positions(args, dx.rows);
  if (dx.empty()) return;
  const int team = useful_threads(threads_, dx.rows, dx.size());
  const Buffer partials = partial_sums(team, args.head_dim, sum_type);
  const Buffer rotated = allocate(team, args.head_dim, sum_type, Memory::workspace);
  dispatch(dx.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const Rows<A> sums(partials), scratch(rotated);
    parallel_ranges(team, dx.rows, dx.size(), [&](int part, std::int64_t first, std::int64_t last) {
      if (dy.dtype == dx.dtype) {
        backward_rows<T, T>(args, x, rstd, dy, dx, first, last, scratch[part], sums[part]);
      } else {
        backward_rows<T, A>(args, x, rstd, dy, dx, first, last, scratch[part], sums[part]);
      }
    });
  });
  if (norm) add_partials(partials, dweight);
}

}  // namespace bdlm
