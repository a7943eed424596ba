// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/tensor_map.h"

#include "kernels/cuda/runtime.h"

namespace bdlm::cuda {

#ifdef BDLM_EMU

TensorMap map_of_heads(View<const bfloat16> x, std::int64_t head_dim, int box_rows) {
  const auto dim = static_cast<std::uint64_t>(head_dim), row = static_cast<std::uint64_t>(x.stride);
  TensorMap map;
  map.base = x.data;
  map.rank = 3;
  map.elem = sizeof(bfloat16);
  map.swz = ptx::Swizzle::b128;
  map.dim[0] = dim;
  map.dim[1] = static_cast<std::uint64_t>(x.cols) / dim;
  map.dim[2] = static_cast<std::uint64_t>(x.rows);
  map.stride[1] = dim * sizeof(bfloat16);
  map.stride[2] = row * sizeof(bfloat16);
  map.box[0] = box_channels;
  map.box[1] = 1;
  map.box[2] = static_cast<std::uint32_t>(box_rows);
  return map;
}

#else

namespace {

/// The driver's function, found through the runtime: nothing here links libcuda.
decltype(&cuTensorMapEncodeTiled) encoder() {
  void* function = nullptr;
  auto found = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                              cudaEnableDefault, &found),
             "cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess) {
    fail_cuda("cuTensorMapEncodeTiled", cudaErrorSymbolNotFound);
  }
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

}  // namespace

TensorMap map_of_heads(View<const bfloat16> x, std::int64_t head_dim, int box_rows) {
  static const auto encode = encoder();
  const auto dim = static_cast<std::uint64_t>(head_dim), row = static_cast<std::uint64_t>(x.stride);
  const cuuint64_t dims[] = {dim, static_cast<std::uint64_t>(x.cols) / dim,
                             static_cast<std::uint64_t>(x.rows)};
  const cuuint64_t strides[] = {dim * sizeof(bfloat16), row * sizeof(bfloat16)};
  const cuuint32_t box[] = {box_channels, 1, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t step[] = {1, 1, 1};
  TensorMap map = {};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<bfloat16*>(x.data), dims,
             strides, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  // The driver's first error codes are the runtime's.
  if (result != CUDA_SUCCESS) {
    fail_cuda("cuTensorMapEncodeTiled", static_cast<cudaError_t>(result));
  }
  return map;
}

#endif

}  // namespace bdlm::cuda
