// SPDX-License-Identifier: Apache-2.0
#include "model/balance.h"

#include <vector>

namespace bdlm {
namespace {

template <class Value>
std::vector<double> host_values(Device& device, Tensor x) {
  std::vector<Value> host(static_cast<std::size_t>(x.size()));
  device.copy_to_host(x, host.data());
  return {host.begin(), host.end()};
}

template <class Value>
void fill(Device& device, const std::vector<double>& host, Tensor x) {
  const std::vector<Value> values(host.begin(), host.end());
  device.copy_from_host(values.data(), x);
}

}  // namespace

Buffer add_balance(const LayerContext& c, const LayerPlan& plan, const LayerLists& lists,
                   const MixtureActivations& a) {
  const Router router = c.config.router();
  const auto rows = static_cast<std::int64_t>(plan.readers.size());
  const auto experts = static_cast<std::size_t>(router.experts);
  const Buffer sums = c.sum(rows, 2 * router.experts);
  c.device.zero(sums);
  c.device.balance_sums(router, a.probabilities, a.route.chosen_list.data, lists.packed.data, sums);
  const bool f64 = c.sums() == DType::f64;
  std::vector<double> host =
      f64 ? host_values<double>(c.device, sums) : host_values<float>(c.device, sums);
  c.balance.group.all_reduce(host, Reduce::sum);

  std::vector<double> gradient(static_cast<std::size_t>(rows) * experts, 0);
  for (std::size_t r = 0; r < plan.readers.size(); ++r) {
    if (plan.readers[r] == 0) continue;
    const auto n = static_cast<double>(plan.readers[r]);
    const double* assigned = host.data() + 2 * r * experts;
    const double* probability = assigned + experts;
    for (std::size_t e = 0; e < experts; ++e) {
      const double share = static_cast<double>(router.experts) * assigned[e] / n;
      gradient[r * experts + e] = c.balance.factor * share / n;
      if (c.balance.group.rank() == 0) c.balance.sum += share * probability[e] / n;
    }
  }
  Buffer balance = c.sum(rows, router.experts);
  if (f64)
    fill<double>(c.device, gradient, balance);
  else
    fill<float>(c.device, gradient, balance);
  return balance;
}

}  // namespace bdlm
