// SPDX-License-Identifier: Apache-2.0
// Products through cuBLASLt, which is column-major: c = op(a) op(b) is asked for as its transpose,
// c' = op(b)' op(a)', where a row-major matrix is its own transpose already. bfloat16 and float sum
// in float (no TF32: parity), double in double. Algorithms are chosen once a shape and kept.
#ifndef BDLM_EMU
#include <cublasLt.h>

#include <map>
#include <tuple>

#include "kernels/cuda/products.h"
#include "kernels/cuda/products_grouped.h"

namespace bdlm::cuda {
namespace {

void check_blas(cublasStatus_t status, const char* operation) {
  require(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: {} failed: {} ({})", operation,
          cublasLtGetStatusString(status), cublasLtGetStatusName(status));
}

cudaDataType_t data_type(DType type) {
  return type == DType::f64 ? CUDA_R_64F : type == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

/// The largest power of two up to 256 that divides the address and the row's bytes: algorithms that
/// read 16 bytes at a time are chosen where that is possible.
std::uint32_t alignment_of(const Tensor& x) {
  const auto bits = reinterpret_cast<std::uintptr_t>(x.data) |
                    static_cast<std::uintptr_t>(x.stride) * size_of(x.dtype) | 256u;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

struct Matrix {
  cublasLtMatrixLayout_t layout = nullptr;
  explicit Matrix(const Tensor& x) {
    // One row has no stride to respect; cuBLASLt wants at least the columns.
    check_blas(cublasLtMatrixLayoutCreate(&layout, data_type(x.dtype),
                                          static_cast<std::uint64_t>(x.cols),
                                          static_cast<std::uint64_t>(x.rows), x.stride),
               "cublasLtMatrixLayoutCreate");
  }
  ~Matrix() { cublasLtMatrixLayoutDestroy(layout); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
};

struct Operation {
  cublasLtMatmulDesc_t desc = nullptr;
  Operation(DType type, Transpose first, Transpose second) {
    const bool wide = type == DType::f64;
    check_blas(cublasLtMatmulDescCreate(&desc, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                        wide ? CUDA_R_64F : CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, first);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second);
  }
  ~Operation() { cublasLtMatmulDescDestroy(desc); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 private:
  void set(cublasLtMatmulDescAttributes_t attribute, Transpose transpose) {
    const cublasOperation_t value = transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_blas(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
  }
};

class CublasLtProducts final : public Products {
 public:
  CublasLtProducts(Device& device, Stream stream) : device_(device), stream_(stream) {
    check_blas(cublasLtCreate(&handle_), "cublasLtCreate");
  }
  ~CublasLtProducts() override { cublasLtDestroy(handle_); }

  void multiply(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
                const Tensor& addend, const Tensor& c, const ProductSizes& sizes,
                const ProductSizes& like) override {
    const bool adds = addend.data != nullptr;
    const Tensor& source = adds ? addend : c;
    const Operation operation(a.dtype, trans_b, trans_a);
    const Matrix first(b), second(a), in(source), out(c);
    const auto algorithm = [&](const ProductSizes& s) {
      return chosen_for(operation, shaped(a, trans_a, s.m, s.k), trans_a,
                        shaped(b, trans_b, s.k, s.n), trans_b,
                        shaped(source, Transpose::no, s.m, s.n),
                        shaped(c, Transpose::no, s.m, s.n), adds, s);
    };
    cublasLtMatmulHeuristicResult_t chosen = algorithm(like);
    if (like.m != sizes.m || like.n != sizes.n || like.k != sizes.k) {
      cublasLtMatmulHeuristicResult_t own = {};
      const bool fits = cublasLtMatmulAlgoCheck(handle_, operation.desc, first.layout,
                                                second.layout, in.layout, out.layout, &chosen.algo,
                                                &own) == CUBLAS_STATUS_SUCCESS;
      if (fits)
        chosen.workspaceSize = own.workspaceSize;
      else
        chosen = algorithm(sizes);
    }
    const Buffer workspace =
        device_.allocate(1, static_cast<std::int64_t>(chosen.workspaceSize), DType::bf16,
                         Memory::workspace);  // twice the bytes: never too small
    if (a.dtype == DType::f64)
      run<double>(operation, b, first, a, second, source, in, c, out, chosen, workspace, adds);
    else
      run<float>(operation, b, first, a, second, source, in, c, out, chosen, workspace, adds);
  }

  bool multiply_groups(const Tensor& a, std::span<const std::int64_t> rows, const Tensor& w,
                       Transpose trans_w, const Tensor& c) override {
    return grouped_.multiply(a, rows, w, trans_w, c);
  }

 private:
  // dtypes, transposes, addend, sizes, strides, alignments
  using Key = std::tuple<DType, DType, bool, bool, bool, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::uint32_t,
                         std::uint32_t, std::uint32_t, std::uint32_t>;

  /// Another matrix in the place of x: of these sizes once it is turned.
  static Tensor shaped(Tensor x, Transpose turned, std::int64_t rows, std::int64_t cols) {
    x.rows = turned == Transpose::yes ? cols : rows;
    x.cols = turned == Transpose::yes ? rows : cols;
    return x;
  }

  cublasLtMatmulHeuristicResult_t chosen_for(const Operation& operation, const Tensor& a,
                                             Transpose trans_a, const Tensor& b, Transpose trans_b,
                                             const Tensor& source, const Tensor& c, bool adds,
                                             const ProductSizes& sizes) {
    const Key key{a.dtype,  c.dtype,         trans_a == Transpose::yes, trans_b == Transpose::yes,
                  adds,     sizes.m,         sizes.n,                   sizes.k,
                  a.stride, b.stride,        source.stride,             c.stride,
                  alignment_of(a), alignment_of(b), alignment_of(source), alignment_of(c)};
    const auto found = algorithms_.find(key);
    if (found != algorithms_.end()) return found->second;
    constexpr std::size_t most = 8192;  // rows are tokens: their number differs, without an end
    if (algorithms_.size() >= most) algorithms_.clear();
    const Matrix first(b), second(a), in(source), out(c);
    return algorithms_.emplace(key, choose(operation, first, second, in, out, key)).first->second;
  }

  cublasLtMatmulHeuristicResult_t choose(const Operation& operation, const Matrix& first,
                                         const Matrix& second, const Matrix& in, const Matrix& out,
                                         const Key& key) {
    constexpr std::size_t most_workspace = std::size_t{32} << 20;
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_blas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_workspace);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::get<13>(key));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::get<12>(key));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::get<14>(key));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::get<15>(key));
    cublasLtMatmulHeuristicResult_t result = {};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, operation.desc, first.layout, second.layout,
                                       in.layout, out.layout, preference, 1, &result, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    require(status == CUBLAS_STATUS_SUCCESS && count > 0,
            "cuBLASLt has no algorithm for a product of {} x {} x {}: {}", std::get<5>(key),
            std::get<6>(key), std::get<7>(key), cublasLtGetStatusString(status));
    return result;
  }

  template <class A>
  void run(const Operation& operation, const Tensor& first, const Matrix& first_layout,
           const Tensor& second, const Matrix& second_layout, const Tensor& source,
           const Matrix& in, const Tensor& c, const Matrix& out,
           const cublasLtMatmulHeuristicResult_t& chosen, const Buffer& workspace, bool adds) {
    const A alpha = 1, beta = adds ? 1 : 0;
    check_blas(cublasLtMatmul(handle_, operation.desc, &alpha, first.data, first_layout.layout,
                              second.data, second_layout.layout, &beta, source.data, in.layout,
                              c.data, out.layout, &chosen.algo, workspace.tensor().data,
                              chosen.workspaceSize, stream_),
               "cublasLtMatmul");
  }

  Device& device_;
  Stream stream_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, cublasLtMatmulHeuristicResult_t> algorithms_;
  GroupedProducts grouped_{device_, stream_};
};

}  // namespace

std::unique_ptr<Products> make_products(Device& device, Stream stream) {
  return std::make_unique<CublasLtProducts>(device, stream);
}

}  // namespace bdlm::cuda
#endif
