// SPDX-License-Identifier: Apache-2.0
// Choice of the transport, and checks that both share.
#include "parallel/exchange.h"

#include "kernels/error.h"
#include "parallel/exchange_transports.h"

namespace bdlm {

void check_rows(const ExchangeContext& context, const LayerPlan& plan, const Tensor& x,
                DType dtype) {
  const auto rows = static_cast<std::int64_t>(plan.in.size());
  require(x.rows == rows && (rows == 0 || (x.cols == context.kv_width && x.dtype == dtype)),
          "exchange of {}x{} {} keys and values, but the plan has {} rows of {} {}", x.rows, x.cols,
          name_of(x.dtype), rows, context.kv_width, name_of(dtype));
}

bool is_run(std::span<const std::int32_t> rows) {
  return rows.empty() || rows.back() - rows.front() == static_cast<std::int64_t>(rows.size()) - 1;
}

std::unique_ptr<Exchange> make_exchange(ExchangeKind kind, Device& device, Communicator& group,
                                        std::int64_t kv_width, DType compute) {
  const ExchangeContext context{device, group, kv_width, compute};
  // exact and allgather differ in what the plan lists only.
  return kind == ExchangeKind::ring ? make_ring(context) : make_point_to_point(context);
}

}  // namespace bdlm
