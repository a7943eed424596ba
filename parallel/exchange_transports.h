// SPDX-License-Identifier: Apache-2.0
// The two implementations of Exchange and what they have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "parallel/exchange.h"

namespace bdlm {

struct ExchangeContext {
  Device& device;
  Communicator& group;
  std::int64_t kv_width = 0;
  DType compute = DType::f32;

  DType sum() const { return accumulate_type(compute); }
  Buffer rows(std::int64_t count, DType dtype) const {
    return device.allocate(count, kv_width, dtype, Memory::exchange);
  }
};

/// Throws Error unless x is [rows of plan.in, kv_width] of this dtype.
void check_rows(const ExchangeContext& context, const LayerPlan& plan, const Tensor& x,
                DType dtype);


/// The list is first, first + 1, ...: no copy is needed.
bool is_run(std::span<const std::int32_t> rows);

std::unique_ptr<Exchange> make_point_to_point(const ExchangeContext& context);
std::unique_ptr<Exchange> make_ring(const ExchangeContext& context);

}  // namespace bdlm
