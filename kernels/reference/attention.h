// SPDX-License-Identifier: Apache-2.0
// Plain definition: attention of every query row to one interval of each key source.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/reference/matrix.h"

namespace bdlm::reference {

template <class A>
struct KeySource {
  Matrix<A> key, value;
  std::vector<Interval> visible;  // of each query row
};

/// The score of query row i and key row k in one head.
template <class A>
A attention_score(const AttentionShape& shape, const Matrix<A>& q, const Matrix<A>& key,
                  std::int64_t head, std::int64_t i, std::int64_t k) {
  const std::int64_t d = shape.head_dim, kv_head = head / (shape.heads / shape.kv_heads);
  A sum = 0;
  for (std::int64_t c = 0; c < d; ++c) sum += q(i, head * d + c) * key(k, kv_head * d + c);
  return A(shape.scale) * sum;
}

/// out = softmax over all visible keys of all sources, lse the logarithm of its denominator.
template <class A>
void attention_forward(const AttentionShape& shape, const Matrix<A>& q,
                       const std::vector<KeySource<A>>& sources, Matrix<A>& out, Matrix<A>& lse) {
  const std::int64_t d = shape.head_dim;
  for (std::int64_t i = 0; i < q.rows; ++i) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
      A largest = -std::numeric_limits<A>::infinity();
      for (const KeySource<A>& source : sources) {
        const Interval seen = source.visible[std::size_t(i)];
        for (std::int64_t k = seen.lo; k < seen.hi; ++k) {
          largest = std::max(largest, attention_score(shape, q, source.key, head, i, k));
        }
      }
      A sum = 0;
      std::vector<A> total(std::size_t(d), A(0));
      for (const KeySource<A>& source : sources) {
        const Interval seen = source.visible[std::size_t(i)];
        for (std::int64_t k = seen.lo; k < seen.hi; ++k) {
          const A p = std::exp(attention_score(shape, q, source.key, head, i, k) - largest);
          sum += p;
          for (std::int64_t c = 0; c < d; ++c) {
            total[std::size_t(c)] += p * source.value(k, kv_head * d + c);
          }
        }
      }
      for (std::int64_t c = 0; c < d; ++c) {
        out(i, head * d + c) = sum == 0 ? A(0) : total[std::size_t(c)] / sum;
      }
      lse(i, head) = sum == 0 ? -std::numeric_limits<A>::infinity() : largest + std::log(sum);
    }
  }
}

/// delta = the sum over a head's channels of out dout.
template <class A>
void attention_delta(const AttentionShape& shape, const Matrix<A>& out, const Matrix<A>& dout,
                     Matrix<A>& delta) {
  for (std::int64_t i = 0; i < out.rows; ++i) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      delta(i, head) = 0;
      for (std::int64_t c = head * shape.head_dim; c < (head + 1) * shape.head_dim; ++c) {
        delta(i, head) += out(i, c) * dout(i, c);
      }
    }
  }
}

/// With p = exp(score - lse) and ds = p (dout value - delta): dvalue += p dout,
/// dq += scale ds key, dkey += scale ds q.
template <class A>
void attention_backward(const AttentionShape& shape, const Matrix<A>& q, const KeySource<A>& source,
                        const Matrix<A>& lse, const Matrix<A>& dout, const Matrix<A>& delta,
                        Matrix<A>& dq, Matrix<A>& dkey, Matrix<A>& dvalue) {
  const std::int64_t d = shape.head_dim;
  for (std::int64_t i = 0; i < q.rows; ++i) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      if (lse(i, head) == -std::numeric_limits<A>::infinity()) continue;
      const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
      const Interval seen = source.visible[std::size_t(i)];
      for (std::int64_t k = seen.lo; k < seen.hi; ++k) {
        const A p = std::exp(attention_score(shape, q, source.key, head, i, k) - lse(i, head));
        A dp = 0;
        for (std::int64_t c = 0; c < d; ++c) {
          dp += dout(i, head * d + c) * source.value(k, kv_head * d + c);
        }
        const A ds = A(shape.scale) * p * (dp - delta(i, head));
        for (std::int64_t c = 0; c < d; ++c) {
          const std::int64_t of_query = head * d + c, of_key = kv_head * d + c;
          dvalue(k, of_key) += p * dout(i, of_query);
          dq(i, of_query) += ds * source.key(k, of_key);
          dkey(k, of_key) += ds * q(i, of_query);
        }
      }
    }
  }
}

}  // namespace bdlm::reference
