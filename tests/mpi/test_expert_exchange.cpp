// SPDX-License-Identifier: Apache-2.0
// Rows to their experts and back: every pair arrives once, at the right expert, in a fixed order, and
// what comes back stands where it left; with ranks and experts that get nothing.
#include <catch2/catch.hpp>

#include "parallel/expert_exchange.h"
#include "tests/mpi/place.h"

using namespace bdlm;

namespace {

constexpr std::int64_t k = 2;

/// Rank r has r + 1 rows, or none at all.
std::vector<std::int32_t> choice_of(int rank, std::int64_t experts, bool few) {
  std::vector<std::int32_t> chosen;
  if (few && rank % 2 == 1) return chosen;
  for (std::int64_t row = 0; row < 2 * rank + 1; ++row) {
    const std::int64_t first = (row * 3 + rank) % (few ? 2 : experts);
    chosen.push_back(static_cast<std::int32_t>(first));
    chosen.push_back(static_cast<std::int32_t>((first + 1) % experts));
  }
  return chosen;
}

double name_of_pair(int rank, std::int64_t pair) {
  return 1000.0 * rank + static_cast<double>(pair);
}

}  // namespace

TEST_CASE("pairs travel to their experts and back", "[test_expert_exchange]") {
  const bool few = GENERATE(false, true);
  auto traffic = std::make_shared<Traffic>();
  auto group = test::device_world(traffic);
  Device& device = *test::device();
  const int ranks = group->size(), me = group->rank();
  const std::int64_t experts = 3 * ranks;
  ExpertExchange exchange(device, *group, experts);
  const std::vector<std::int32_t> chosen = choice_of(me, experts, few);
  const Dispatch dispatch = exchange.plan(chosen, k);

  std::vector<double> names;
  for (const std::int32_t pair : dispatch.pairs) names.push_back(name_of_pair(me, pair));
  Buffer out = device.allocate(static_cast<std::int64_t>(names.size()), 1, DType::f64,
                               Memory::activations);
  device.copy_from_host(names.data(), out);
  const auto before = traffic->at(Purpose::expert_rows);
  Buffer arrived = exchange.send(dispatch, std::move(out));
  const ExpertRows travelled = exchange.elsewhere(dispatch);
  CHECK(traffic->at(Purpose::expert_rows).sent - before.sent == 8 * travelled.sent);
  CHECK(traffic->at(Purpose::expert_rows).received - before.received == 8 * travelled.received);

  // By expert, then by rank, then by pair.
  std::vector<double> wanted;
  std::vector<std::int64_t> counts;
  for (std::int64_t e = 3 * me; e < 3 * me + 3; ++e) {
    std::int64_t count = 0;
    for (int r = 0; r < ranks; ++r) {
      const auto theirs = choice_of(r, experts, few);
      for (std::size_t pair = 0; pair < theirs.size(); ++pair)
        if (theirs[pair] == e) {
          wanted.push_back(name_of_pair(r, static_cast<std::int64_t>(pair)));
          ++count;
        }
    }
    counts.push_back(count);
  }
  CHECK(dispatch.expert_rows == counts);
  std::vector<double> got(static_cast<std::size_t>(arrived.tensor().rows));
  device.copy_to_host(arrived, got.data());
  CHECK(got == wanted);

  const Buffer back = exchange.send_back(dispatch, std::move(arrived));
  std::vector<double> home(static_cast<std::size_t>(back.tensor().rows));
  device.copy_to_host(back, home.data());
  CHECK(home == names);
  for (std::size_t pair = 0; pair < chosen.size(); ++pair)
    CHECK(home[static_cast<std::size_t>(dispatch.places[pair])] ==
          name_of_pair(me, static_cast<std::int64_t>(pair)));
}
