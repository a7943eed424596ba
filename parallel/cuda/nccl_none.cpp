// SPDX-License-Identifier: Apache-2.0
// In the place of nccl_group.cpp where the build has no NCCL.
#if !defined(BDLM_NCCL) && !defined(BDLM_EMU)
#include "kernels/error.h"
#include "parallel/cuda/device_group.h"

namespace bdlm::cuda {

std::unique_ptr<Communicator> make_nccl_group(std::unique_ptr<Communicator>, std::shared_ptr<CudaDevice>,
                                              std::shared_ptr<Traffic>, std::string) {
  fail("parallel.transport: nccl is asked for, but this backend was built without NCCL: use host");
}

}  // namespace bdlm::cuda
#endif
