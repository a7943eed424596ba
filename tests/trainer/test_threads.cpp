// SPDX-License-Identifier: Apache-2.0
// Shares of cores, and bindings that nobody wanted.
#include <catch2/catch.hpp>

#include "trainer/threads.h"

using namespace bdlm;
using Catch::Matchers::Contains;

namespace {

const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};

}  // namespace

TEST_CASE("cores are shared by the ranks that may run on them") {
  const std::vector<Placement> unbound = {
      {"a", 8, eight}, {"a", 8, eight}, {"a", 8, eight}, {"b", 8, eight}};
  CHECK(fair_threads(unbound, 0) == 2);  // 8 cores, 3 ranks
  CHECK(fair_threads(unbound, 3) == 8);
  const std::vector<Placement> bound = {{"a", 8, {0, 1, 2, 3}}, {"a", 8, {4, 5, 6, 7}}};
  CHECK(fair_threads(bound, 0) == 4);
  const std::vector<Placement> crowd(5, Placement{"a", 2, {0, 1}});
  CHECK(fair_threads(crowd, 4) == 1);
}

TEST_CASE("a binding to one core of many is told") {
  CHECK(binding_problem({{"a", 8, eight}, {"a", 8, eight}}).empty());
  CHECK(binding_problem({{"a", 2, {0}}, {"a", 2, {1}}}).empty());  // all cores in use
  CHECK(binding_problem({{"a", 1, {0}}, {"a", 1, {0}}}).empty());
  CHECK_THAT(binding_problem({{"a", 8, {3}}, {"a", 8, {3}}}),
             Contains("2 ranks on a share core 3, one of 8") && Contains("--bind-to none"));
  CHECK_THAT(binding_problem({{"a", 8, eight}, {"b", 8, {0}}}),
             Contains("rank 1 is bound to one of the 8 cores of b"));
}

TEST_CASE("this process may run somewhere") {
  const Placement placement = own_placement();
  CHECK_FALSE(placement.host.empty());
  CHECK_FALSE(placement.cores.empty());
  CHECK(std::is_sorted(placement.cores.begin(), placement.cores.end()));
}
