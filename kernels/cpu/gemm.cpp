// SPDX-License-Identifier: Apache-2.0
// Matrix products: f32 and bf16 by oneDNN (AMX where the processor has it), f64 by OpenBLAS.
#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <bit>

#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/product_cache.h"

namespace bdlm {
namespace {

/// Both libraries take the calling thread's OpenMP setting; this sets it for one call.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;
  ~ThreadScope() { omp_set_num_threads(before_); }

 private:
  int before_;
};

/// Below this many multiplications waking the other threads costs more than they save.
constexpr double small_product = 2.0e6;

dnnl::memory::data_type data_type(DType type) {
  return type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc describe(std::int64_t rows, std::int64_t cols, DType type, std::int64_t stride,
                            Transpose transposed) {
  const bool plain = transposed == Transpose::no;
  return {{rows, cols},
          data_type(type),
          plain ? dnnl::memory::dims{stride, 1} : dnnl::memory::dims{1, stride}};
}

void product_f64(const ProductShape& s, const double* a, const double* b, double* c) {
  const auto order = [](Transpose t) { return t == Transpose::yes ? CblasTrans : CblasNoTrans; };
  const auto size = [](std::int64_t n) {
    require(n <= INT32_MAX, "gemm: f64 matrices end at {} rows or columns", INT32_MAX);
    return static_cast<blasint>(n);
  };
  cblas_dgemm(CblasRowMajor, order(s.trans_a), order(s.trans_b), size(s.m), size(s.n), size(s.k),
              1.0, a, size(s.stride_a), b, size(s.stride_b),
              s.accumulate == Accumulate::yes ? 1.0 : 0.0, c, size(s.stride_c));
}

/// Rows of the next piece of a product that has `rows` left.
std::int64_t piece_of(std::int64_t rows) {
  constexpr std::int64_t shortest = 32;
  return rows <= shortest ? rows
                          : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rows)));
}

}  // namespace

ProductCache::Product ProductCache::make(const ProductShape& s) {
  const auto a = describe(s.m, s.k, s.input, s.stride_a, s.trans_a);
  const auto b = describe(s.k, s.n, s.input, s.stride_b, s.trans_b);
  const auto c = describe(s.m, s.n, s.output, s.stride_c, Transpose::no);
  dnnl::primitive_attr attributes;
  // The scratchpad comes from our pool, so that it is counted and shared by all products.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.accumulate == Accumulate::yes) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description({a, b, c}, attributes, engine_);
  return {dnnl::matmul(description), a, b, c, description.scratchpad_desc()};
}

const ProductCache::Product& ProductCache::get(const ProductShape& shape) {
  auto found = products_.find(shape);
  if (found == products_.end()) {
    if (products_.size() >= capacity_) {
      products_.erase(std::min_element(
          products_.begin(), products_.end(),
          [](const auto& x, const auto& y) { return x.second.last_use < y.second.last_use; }));
    }
    found = products_.emplace(shape, make(shape)).first;
  }
  found->second.last_use = ++uses_;
  return found->second;
}

void CpuDevice::gemm(Tensor a, Transpose trans_a, Tensor b, Transpose trans_b, Tensor c,
                     Accumulate accumulate) {
  const auto [m, n, k] = check_gemm(a, trans_a, b, trans_b, c);
  const bool turned_a = trans_a == Transpose::yes, turned_b = trans_b == Transpose::yes;
  if (c.empty()) return;
  if (k == 0) {
    if (accumulate == Accumulate::no) zero(c);
    return;
  }

  const ProductShape shape{m,       n,       k,       a.stride, b.stride,  c.stride,
                           trans_a, trans_b, a.dtype, c.dtype,  accumulate};
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const ThreadScope scope(work < small_product ? 1 : threads_);
  if (a.dtype == DType::f64) {
    return product_f64(shape, a.as<double>(), b.as<double>(), c.as<double>());
  }
  const auto keys = [&](std::int64_t first, std::int64_t count) {
    return turned_b ? b.slice_cols(first, count) : b.slice_rows(first, count);
  };
  // Rows of a are tokens: their number differs in every micro-batch, and a new shape costs as much
  // as a small product. Powers of two and a short rest are shapes that come again.
  for (std::int64_t first = 0; first < a.rows;) {
    // A sum in bf16 would be rounded between pieces.
    const bool whole = turned_a && c.dtype == DType::bf16;
    const std::int64_t count = whole ? a.rows : piece_of(a.rows - first);
    ProductShape piece = shape;
    (turned_a ? piece.k : piece.m) = count;
    if (turned_a && first > 0) piece.accumulate = Accumulate::yes;
    product(piece, a.slice_rows(first, count), turned_a ? keys(first, count) : b,
            turned_a ? c : c.slice_rows(first, count));
    first += count;
  }
}

void CpuDevice::product(const ProductShape& shape, Tensor a, Tensor b, Tensor c) {
  const ProductCache::Product& product = products_->get(shape);
  const Buffer scratchpad =
      allocate(1, static_cast<std::int64_t>((product.scratchpad.get_size() + 3) / 4), DType::f32,
               Memory::workspace);
  dnnl::engine& engine = products_->engine();
  product.primitive.execute(
      products_->stream(),
      {{DNNL_ARG_SRC, dnnl::memory(product.a, engine, a.data)},
       {DNNL_ARG_WEIGHTS, dnnl::memory(product.b, engine, b.data)},
       {DNNL_ARG_DST, dnnl::memory(product.c, engine, c.data)},
       {DNNL_ARG_SCRATCHPAD, dnnl::memory(product.scratchpad, engine, scratchpad.tensor().data)}});
  products_->stream().wait();
}

void CpuDevice::gemm_add(Tensor a, Transpose trans_a, Tensor b, Transpose trans_b, Tensor addend,
                         Tensor c) {
  check_gemm_addend(addend, c);
  copy(addend, c);
  gemm(a, trans_a, b, trans_b, c, Accumulate::yes);
}

}  // namespace bdlm
