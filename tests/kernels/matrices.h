// SPDX-License-Identifier: Apache-2.0
// Test matrices, and the one accuracy rule of the kernel tests.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/reference/matrix.h"
#include "tests/kernels/shared_memory.h"

namespace bdlm::test {

using Truth = long double;

/// A matrix with `padding` elements behind each row. They hold a mark that no operation may touch.
/// Reading or writing elements waits for the device under test.
class TestMatrix {
 public:
  TestMatrix(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t padding = 0)
      : bytes_(static_cast<std::size_t>((rows * (cols + padding) + 1)) * size_of(dtype)),
        storage_(static_cast<unsigned char*>(allocate_shared(bytes_))),
        tensor_{storage_.get(), rows, cols, cols + padding, dtype} {
    std::fill_n(storage_.get(), bytes_, mark);
  }
  TestMatrix(TestMatrix&&) = default;
  TestMatrix& operator=(TestMatrix&&) = default;

  /// For a device; take it anew for every call.
  const Tensor& tensor() const {
    hand_over();
    return tensor_;
  }
  operator const Tensor&() const { return tensor(); }
  std::int64_t rows() const { return tensor_.rows; }
  std::int64_t cols() const { return tensor_.cols; }

  /// Normally distributed, rounded to the dtype.
  TestMatrix&& random(unsigned seed, double scale = 1) && {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(0, scale);
    for (std::int64_t i = 0; i < tensor_.rows; ++i) {
      for (std::int64_t j = 0; j < tensor_.cols; ++j) set(i, j, normal(generator));
    }
    return std::move(*this);
  }
  TestMatrix&& filled(double value) && {
    for (std::int64_t i = 0; i < tensor_.rows; ++i) {
      for (std::int64_t j = 0; j < tensor_.cols; ++j) set(i, j, value);
    }
    return std::move(*this);
  }
  template <class A>
  TestMatrix&& from(const reference::Matrix<A>& values) && {
    for (std::int64_t i = 0; i < tensor_.rows; ++i) {
      for (std::int64_t j = 0; j < tensor_.cols; ++j) set(i, j, values(i, j));
    }
    return std::move(*this);
  }

  template <class A>
  void set(std::int64_t i, std::int64_t j, A value) {
    settle();
    dispatch(tensor_.dtype, [&]<class T>() { store(Rows<T>(tensor_)[i][j], value); });
  }
  double get(std::int64_t i, std::int64_t j) const {
    settle();
    double value = 0;
    dispatch(tensor_.dtype,
             [&]<class T>() { value = static_cast<double>(load(Rows<T>(tensor_)[i][j])); });
    return value;
  }

  template <class A>
  reference::Matrix<A> values() const {
    reference::Matrix<A> result(tensor_.rows, tensor_.cols);
    for (std::int64_t i = 0; i < tensor_.rows; ++i) {
      for (std::int64_t j = 0; j < tensor_.cols; ++j) result(i, j) = static_cast<A>(get(i, j));
    }
    return result;
  }

  std::vector<unsigned char> bytes() const {
    settle();
    return {storage_.get(), storage_.get() + bytes_};
  }

  bool padding_untouched() const {
    settle();
    const std::size_t element = size_of(tensor_.dtype);
    for (std::size_t at = 0; at < bytes_; ++at) {
      const auto index = static_cast<std::int64_t>(at / element);
      const bool inside =
          index < tensor_.rows * tensor_.stride && index % tensor_.stride < tensor_.cols;
      if (!inside && storage_[at] != mark) return false;
    }
    return true;
  }

 private:
  static constexpr unsigned char mark = 0x7e;
  struct Free {
    void operator()(unsigned char* data) const { free_shared(data); }
  };
  std::size_t bytes_;    // one element more than the matrix, as a fence
  std::unique_ptr<unsigned char[], Free> storage_;
  Tensor tensor_;
};

/// Half a unit in the last place of 1.
inline double unit_roundoff(DType type) {
  return type == DType::f64 ? 0x1p-53 : type == DType::f32 ? 0x1p-24 : 0x1p-9;
}

/// The accuracy rule: the error is at most twice that of `naive`, the reference in the accumulate
/// type rounded to the result's dtype, plus one rounding; both in the 2-norm and the maximum.
template <class A>
void check_close(const char* what, const TestMatrix& result, const reference::Matrix<Truth>& truth,
                 const reference::Matrix<A>& naive) {
  const Tensor& t = result.tensor();
  const TestMatrix rounded = TestMatrix(t.dtype, t.rows, t.cols).from(naive);
  long double square = 0, naive_square = 0, size_square = 0;
  long double worst = 0, naive_worst = 0, size = 0;
  bool comparable = true;
  for (std::int64_t i = 0; i < t.rows; ++i) {
    for (std::int64_t j = 0; j < t.cols; ++j) {
      const long double error = std::fabs(result.get(i, j) - truth(i, j));
      const long double naive_error = std::fabs(rounded.get(i, j) - truth(i, j));
      comparable = comparable && std::isfinite(error);  // fmax would pass over NaN
      square += error * error;
      naive_square += naive_error * naive_error;
      size_square += truth(i, j) * truth(i, j);
      worst = std::fmax(worst, error);
      naive_worst = std::fmax(naive_worst, naive_error);
      size = std::fmax(size, std::fabs(truth(i, j)));
    }
  }
  const long double rounding = unit_roundoff(t.dtype);
  INFO(what << " " << name_of(t.dtype) << " " << t.rows << " x " << t.cols << ", stride "
            << t.stride);
  CHECK(result.padding_untouched());
  CHECK(comparable);
  CHECK(double(std::sqrt(square)) <=
        double(2 * std::sqrt(naive_square) + rounding * std::sqrt(size_square)));
  CHECK(double(worst) <= double(2 * naive_worst + rounding * size));
}

/// Central differences of `loss` by each element of x (f64) against `gradient`.
template <class Loss>
void check_gradient(const char* what, TestMatrix& x, const TestMatrix& gradient, Loss&& loss) {
  constexpr double step = 1e-5;
  double worst = 0;
  for (std::int64_t i = 0; i < x.rows(); ++i) {
    for (std::int64_t j = 0; j < x.cols(); ++j) {
      const double value = x.get(i, j);
      x.set(i, j, value + step);
      const double above = loss();
      x.set(i, j, value - step);
      const double below = loss();
      x.set(i, j, value);
      const double error = std::fabs((above - below) / (2 * step) - gradient.get(i, j));
      if (!std::isnan(worst) && !(error <= worst)) worst = error;  // NaN stays
    }
  }
  INFO(what);
  CHECK(worst < 1e-7);
}

/// Sum of a * b, the scalar whose gradient by a is b.
inline double dot(const TestMatrix& a, const TestMatrix& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.rows(); ++i) {
    for (std::int64_t j = 0; j < a.cols(); ++j) sum += a.get(i, j) * b.get(i, j);
  }
  return sum;
}

/// Rows, columns and row padding: nothing, one row, odd sizes, and enough for several threads.
struct Shape {
  std::int64_t rows, cols, padding;
};
inline const std::vector<Shape> shapes{{0, 8, 0},   {1, 1, 0},   {1, 67, 5},
                                       {37, 20, 0}, {37, 33, 7}, {401, 259, 3}};

}  // namespace bdlm::test
