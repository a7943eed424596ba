// SPDX-License-Identifier: Apache-2.0
// Tile schedules against their definition, pair of tiles by pair of tiles.
#include "tests/kernels/cuda/attention_launch.h"

namespace bdlm::test {
namespace {

using cuda::TileRun;
using cuda::TileSchedule;

enum class Pair { unseen, masked, full };

/// Query tile t and key tile u, by looking at every row and key.
Pair classify(const IntervalSet& set, cuda::AttentionTiles tiles, std::int64_t t, std::int64_t u,
              bool whole_rows) {
  const auto rows = static_cast<std::int64_t>(set.visible.size());
  bool any = false, all = (u + 1) * tiles.keys <= set.keys;
  all = all && (!whole_rows || (t + 1) * tiles.rows <= rows);
  for (std::int64_t i = t * tiles.rows; i < std::min(rows, (t + 1) * tiles.rows); ++i) {
    const Interval seen = set.visible[static_cast<std::size_t>(i)];
    for (std::int64_t k = u * tiles.keys; k < std::min(set.keys, (u + 1) * tiles.keys); ++k) {
      const bool sees = seen.lo <= k && k < seen.hi;
      any = any || sees;
      all = all && sees;
    }
  }
  return !any ? Pair::unseen : all ? Pair::full : Pair::masked;
}

/// `pair(own, other)` says what the schedule of `tiles` tiles must hold.
template <class Classify>
void check_schedule(const TileSchedule& schedule, std::int64_t tiles, std::int64_t others,
                    Classify&& pair) {
  REQUIRE(schedule.begin.size() == static_cast<std::size_t>(tiles + 1));
  REQUIRE(schedule.order.size() == static_cast<std::size_t>(tiles));
  CHECK(schedule.begin.front() == 0);
  CHECK(schedule.begin.back() == static_cast<std::int32_t>(schedule.runs.size()));
  std::int64_t full = 0, masked = 0;
  std::vector<std::int64_t> work;
  for (std::int64_t own = 0; own < tiles; ++own) {
    std::vector<TileRun> expected;  // as few runs as possible
    work.push_back(0);
    for (std::int32_t other = 0; other < others; ++other) {
      const Pair seen = pair(own, other);
      if (seen == Pair::unseen) continue;
      ++(seen == Pair::full ? full : masked);
      ++work.back();
      const std::int32_t mask = seen == Pair::masked;
      if (!expected.empty() && expected.back().last == other && expected.back().masked == mask) {
        ++expected.back().last;
      } else {
        expected.push_back({other, other + 1, mask});
      }
    }
    const auto at = static_cast<std::size_t>(own);
    const std::vector<TileRun> runs(schedule.runs.begin() + schedule.begin[at],
                                    schedule.runs.begin() + schedule.begin[at + 1]);
    CHECK(runs == expected);
  }
  CHECK(schedule.full_tiles == full);
  CHECK(schedule.masked_tiles == masked);
  std::vector<bool> met(static_cast<std::size_t>(tiles));
  for (std::size_t i = 0; i < schedule.order.size(); ++i) {
    const auto tile = static_cast<std::size_t>(schedule.order[i]);
    CHECK(!met.at(tile));
    met[tile] = true;
    if (i == 0) continue;
    const auto before = static_cast<std::size_t>(schedule.order[i - 1]);
    CHECK((work[before] > work[tile] || (work[before] == work[tile] && before < tile)));
  }
}

void check_set(const IntervalSet& set) {
  const auto rows = static_cast<std::int64_t>(set.visible.size());
  for (const cuda::AttentionTiles tiles :
       {cuda::AttentionTiles{64, 64}, {16, 8}, {8, 16}, {3, 5}, {1, 1}, {128, 32}}) {
    const std::int64_t row_tiles = (rows + tiles.rows - 1) / tiles.rows;
    const std::int64_t key_tiles = (set.keys + tiles.keys - 1) / tiles.keys;
    INFO(rows << " rows in " << tiles.rows << ", " << set.keys << " keys in " << tiles.keys);
    check_schedule(cuda::schedule_by_query(set.visible, set.keys, tiles.rows, tiles.keys),
                   row_tiles, key_tiles, [&](std::int64_t t, std::int64_t u) {
                     return classify(set, tiles, t, u, false);
                   });
    check_schedule(
        cuda::schedule_by_key(set.visible, set.keys, tiles.rows, tiles.keys), key_tiles, row_tiles,
        [&](std::int64_t u, std::int64_t t) { return classify(set, tiles, t, u, true); });
  }
}

}  // namespace

TEST_CASE("tile schedules of any intervals are exact") {
  for (const int rows : {0, 1, 5, 31, 64, 130}) {
    for (const int keys : {1, 16, 63, 129}) {
      check_set(random_intervals(rows, keys, static_cast<unsigned>(rows + 7 * keys)));
    }
  }
  check_set(IntervalSet{0, std::vector<Interval>(20)});
  check_set(IntervalSet{40, std::vector<Interval>(64, Interval{0, 40})});
  check_set(IntervalSet{128, std::vector<Interval>(128, Interval{0, 128})});
  check_set(IntervalSet{128, std::vector<Interval>(128, Interval{64, 128})});
}

TEST_CASE("tile schedules of block diffusion with ragged documents and windows are exact") {
  for (const int block : {1, 4, 32}) {
    for (const int window : {0, 20}) {
      for (const IntervalSet& set : block_diffusion({37, 1, 70, 5, 15}, block, window)) {
        check_set(set);
      }
    }
  }
  for (const IntervalSet& part : split(block_diffusion({97, 60}, 16)[0], {50, 51})) check_set(part);
}

TEST_CASE("tile schedules of documents apart have a run each and nothing between") {
  // Rows of one tile that see keys 0 and 100: two tiles of ten, not the eight between them.
  const IntervalSet set{110, {{0, 1}, {100, 101}}};
  const TileSchedule schedule = cuda::schedule_by_query(set.visible, set.keys, 2, 10);
  CHECK(schedule.runs == std::vector<TileRun>{{0, 1, 1}, {10, 11, 1}});
}

TEST_CASE("attention kernels are chosen by type and head size and device") {
  using cuda::AttentionKernel;
  CHECK(cuda::choose_attention(false, 128, 90, true).kernel == AttentionKernel::simple);
  CHECK(cuda::choose_attention(true, 128, 75, true).kernel == AttentionKernel::simple);
  CHECK(cuda::choose_attention(true, 128, 80, false).kernel == AttentionKernel::simple);
  CHECK(cuda::choose_attention(true, 100, 80, true).kernel == AttentionKernel::simple);
  CHECK(cuda::choose_attention(true, 264, 80, true).kernel == AttentionKernel::simple);
  for (const std::int64_t head_dim : {8, 64, 80, 128, 256}) {
    CHECK(cuda::choose_attention(true, head_dim, 80, true).kernel == AttentionKernel::mma);
    CHECK(cuda::choose_attention(true, head_dim, 100, true).kernel == AttentionKernel::mma);
  }
}

}  // namespace bdlm::test
