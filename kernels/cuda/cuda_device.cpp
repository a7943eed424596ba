// SPDX-License-Identifier: Apache-2.0
// The device itself: which one, its memory, errors of the runtime, copies to and from the host.
#include "kernels/cuda/cuda_device.h"

#include "kernels/cuda/ops.h"
#include "kernels/cuda/tensor_view.h"

namespace bdlm::cuda {
namespace {

int use_device(int index) {
  int count = 0;  // not written when there is no driver
  const cudaError_t status = cudaGetDeviceCount(&count);
  require(status == cudaSuccess, "no CUDA device can be used: {} ({})", cudaGetErrorString(status),
          cudaGetErrorName(status));
  require(index >= 0 && index < count, "there is no CUDA device {}: this machine shows {} (is "
          "CUDA_VISIBLE_DEVICES set?)",
          index, count);
  check_cuda(cudaSetDevice(index), "cudaSetDevice");
  return index;
}

}  // namespace

void fail_cuda(const char* operation, cudaError_t status) {
  int device = -1;
  cudaGetDevice(&device);
  fail("CUDA device {}: {} failed: {} ({})", device, operation, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

void* DeviceMemory::allocate(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocAsync(&data, bytes, stream_);
  if (status == cudaSuccess) return data;
  if (status != cudaErrorMemoryAllocation) fail_cuda("cudaMallocAsync", status);
  cudaGetLastError();  // it is not an error of what follows
  return nullptr;
}

void DeviceMemory::free(void* data) noexcept { cudaFreeAsync(data, stream_); }

std::string DeviceMemory::remark() const {
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
  return fmt::format("the device has {:.1f} of {:.1f} GiB free", static_cast<double>(free) / (1 << 30),
                     static_cast<double>(total) / (1 << 30));
}

OwnedStream::OwnedStream() {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

OwnedStream::~OwnedStream() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

CudaDevice::CudaDevice(int index)
    : index_(use_device(index)),
      memory_(stream_),
      pool_(memory_),
      products_(make_products(*this, stream_)) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  compute_ = 10 * properties.major + properties.minor;
  name_ = fmt::format("cuda:{} {}", index, properties.name);
  require(compute_ >= 80, "{} has compute capability {}.{}: bdlm's kernels need 8.0 (A100) or later",
          name_, properties.major, properties.minor);
}

class CudaDevice::HostWaits {
 public:
  explicit HostWaits(const CudaDevice& device) : device_(device) {
    if (device_.waiting) device_.waiting(true);
  }
  ~HostWaits() {
    if (device_.waiting) device_.waiting(false);
  }
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;

 private:
  const CudaDevice& device_;
};

CudaDevice::~CudaDevice() { cudaStreamSynchronize(stream_); }

void CudaDevice::synchronize() {
  const HostWaits waits(*this);
  check_cuda(cudaStreamSynchronize(stream_), "the work enqueued so far");
}

void CudaDevice::copy_to_host(Tensor source, void* host) {
  if (source.empty()) return;
  Buffer packed;
  if (!source.contiguous()) {
    packed = scratch(source.rows, source.cols, source.dtype);
    copy(source, packed);
    source = packed;
  }
  fetch(source.data, host, static_cast<std::size_t>(source.size()) * size_of(source.dtype));
}

void CudaDevice::fetch(const void* device, void* host, std::size_t bytes) {
  const HostWaits waits(*this);
  staging_.to_host(device, host, bytes, stream_);
}

void CudaDevice::copy_from_host(const void* host, Tensor target) {
  if (target.empty()) return;
  const std::size_t bytes = static_cast<std::size_t>(target.size()) * size_of(target.dtype);
  if (target.contiguous()) return staging_.to_device(host, target.data, bytes, stream_);
  const Buffer packed = scratch(target.rows, target.cols, target.dtype);
  staging_.to_device(host, packed.tensor().data, bytes, stream_);
  copy(packed, target);
}

std::shared_ptr<void> CudaDevice::upload_bytes(const void* host, std::size_t bytes) {
  void* data = acquire(bytes, Memory::workspace);
  std::shared_ptr<void> owner(
      data, [this, bytes](void* p) { release(p, bytes, Memory::workspace); });
  staging_.to_device(host, data, bytes, stream_);
  return owner;
}

void CudaDevice::zero(Tensor x) {
  if (x.empty()) return;
  if (x.contiguous()) x = x.reshape(1, x.size());
  const std::size_t element = size_of(x.dtype);
  check_cuda(cudaMemset2DAsync(x.data, static_cast<std::size_t>(x.stride) * element, 0,
                               static_cast<std::size_t>(x.cols) * element,
                               static_cast<std::size_t>(x.rows), stream_),
             "zero");
}

void CudaDevice::copy(Tensor x, Tensor y) {
  require_shape("copy: y", y, x.rows, x.cols);
  if (x.empty()) return;
  dispatch_pair(x, y, [&]<class X, class Y>() {
    cuda::copy<X, Y>(stream_, view<const X>(x), view<Y>(y));
  });
}

void CudaDevice::add(Tensor x, Tensor y) {
  require_shape("add: y", y, x.rows, x.cols);
  if (x.empty()) return;
  dispatch_pair(x, y, [&]<class X, class Y>() {
    cuda::add<X, Y>(stream_, view<const X>(x), view<Y>(y));
  });
}

void CudaDevice::gather_rows(Tensor x, const std::int32_t* rows, Tensor y) {
  check_gather_rows(x, y);
  if (y.empty()) return;
  dispatch(x.dtype, [&]<class T>() {
    cuda::gather_rows<T>(stream_, view<const T>(x), rows, view<T>(y));
  });
}

void CudaDevice::scatter_add_rows(Tensor x, const std::int32_t* rows, Tensor y) {
  check_scatter_add_rows(x, y);
  if (x.empty()) return;
  dispatch_pair(x, y, [&]<class X, class Y>() {
    cuda::scatter_add_rows<X, Y>(stream_, view<const X>(x), rows, view<Y>(y));
  });
}

void CudaDevice::add_gathered_rows(Tensor x, const std::int32_t* places, std::int64_t count,
                                   Tensor y) {
  check_add_gathered_rows(x, count, y);
  if (y.empty() || count == 0) return;
  dispatch_pair(x, y, [&]<class X, class Y>() {
    cuda::add_gathered_rows<X, Y>(stream_, view<const X>(x), places, count, view<Y>(y));
  });
}

void CudaDevice::gemm(Tensor a, Transpose trans_a, Tensor b, Transpose trans_b, Tensor c,
                      Accumulate accumulate) {
  const ProductSizes sizes = check_gemm(a, trans_a, b, trans_b, c);
  if (c.empty()) return;
  const bool adds = accumulate == Accumulate::yes;
  if (sizes.k == 0) {
    if (!adds) zero(c);
    return;
  }
  products_->multiply(a, trans_a, b, trans_b, adds ? c : Tensor{}, c, sizes, sizes);
}

void CudaDevice::gemm_add(Tensor a, Transpose trans_a, Tensor b, Transpose trans_b, Tensor addend,
                          Tensor c) {
  const ProductSizes sizes = check_gemm(a, trans_a, b, trans_b, c);
  check_gemm_addend(addend, c);
  if (c.empty()) return;
  if (sizes.k == 0) return copy(addend, c);
  products_->multiply(a, trans_a, b, trans_b, addend, c, sizes, sizes);
}

}  // namespace bdlm::cuda
