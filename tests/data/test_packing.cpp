// SPDX-License-Identifier: Apache-2.0
// Packing: nothing is lost or repeated, rows are found at random as in order, first-fit is
// first-fit.
#include <algorithm>
#include <catch2/catch.hpp>
#include <list>
#include <numeric>
#include <random>
#include <set>

#include "data/packing.h"
#include "files.h"

using namespace bdlm;

namespace {

using Row = std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>;

Row row_of(const std::vector<Piece>& pieces) {
  Row row;
  for (const Piece& piece : pieces) row.emplace_back(piece.document, piece.begin, piece.length);
  return row;
}

std::vector<Row> rows_of(EpochPacker packer) {
  std::vector<Row> rows;
  for (auto pieces = packer.next(); !pieces.empty(); pieces = packer.next())
    rows.push_back(row_of(pieces));
  return rows;
}

/// First-fit as it is told: all pieces in order, a list, one at a time.
std::vector<Row> slow_pack(const std::vector<std::int64_t>& lengths, const PackingOptions& o,
                           std::int64_t epoch) {
  const auto n = static_cast<std::int64_t>(lengths.size());
  std::list<std::tuple<std::int64_t, std::int64_t, std::int64_t>> pieces;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t d = shuffled(i, n, o.seed, epoch);
    std::int64_t begin = 0;
    while (lengths[d] - begin > o.row_tokens) {
      const std::int64_t length = o.row_tokens - o.row_tokens % o.block_size;
      pieces.emplace_back(d, begin, length);
      begin += length;
    }
    pieces.emplace_back(d, begin, lengths[d] - begin);
  }
  std::vector<Row> rows;
  while (!pieces.empty()) {
    Row row;
    std::int64_t room = o.row_tokens, passed = 0;
    for (auto p = pieces.begin(); p != pieces.end() && passed < o.window;) {
      const bool fits = std::get<2>(*p) <= room;
      if (fits) {
        row.push_back(*p);
        room -= std::get<2>(*p);
      }
      passed += !fits;
      p = fits ? pieces.erase(p) : std::next(p);
    }
    rows.push_back(row);
  }
  return rows;
}

std::vector<std::int64_t> random_lengths(std::size_t n, std::int64_t longest) {
  std::mt19937 random(11);
  std::vector<std::int64_t> lengths(n);
  for (auto& length : lengths) length = 1 + static_cast<std::int64_t>(random() % longest);
  return lengths;
}

}  // namespace

TEST_CASE("packing: shuffled is a permutation, another one for each stream", "[packing]") {
  for (std::int64_t n = 1; n < 70; ++n) {
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < n; ++i) seen.insert(shuffled(i, n, 9, 2));
    REQUIRE(static_cast<std::int64_t>(seen.size()) == n);
    REQUIRE(*seen.begin() == 0);
    REQUIRE(*seen.rbegin() == n - 1);
  }
  const std::int64_t n = 1000;
  std::int64_t same = 0, in_place = 0, neighbours = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    same += shuffled(i, n, 9, 2) == shuffled(i, n, 9, 3);
    in_place += shuffled(i, n, 9, 2) == i;
    neighbours += i > 0 && shuffled(i, n, 9, 2) == shuffled(i - 1, n, 9, 2) + 1;
  }
  CHECK(same < 10);
  CHECK(in_place < 10);
  CHECK(neighbours < 10);
  const std::int64_t huge = (std::int64_t{1} << 40) + 3;
  for (std::int64_t i : {std::int64_t{0}, huge / 2, huge - 1}) {
    CHECK(shuffled(i, huge, 9, 2) >= 0);
    CHECK(shuffled(i, huge, 9, 2) < huge);
  }
}

TEST_CASE("packing: first-fit in a window, every token once an epoch", "[packing]") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  for (std::int64_t longest : {12, 40, 200}) {
    const auto lengths = random_lengths(57, longest);
    write_counting_file(path, lengths);
    const TokenFile file(path);
    for (std::int64_t window : {1, 3, 16, 1000})
      for (std::int64_t row_tokens : {8, 37, 64}) {
        CAPTURE(longest, window, row_tokens);
        PackingOptions options{row_tokens, 8, window, 4};
        const std::vector<Row> rows = rows_of(EpochPacker(file, options, 1));
        std::vector<std::vector<int>> hits;
        for (std::int64_t length : lengths) hits.emplace_back(length, 0);
        for (const Row& row : rows) {
          std::int64_t sum = 0;
          for (const auto& [document, begin, length] : row) {
            CHECK(begin % 8 == 0);
            CHECK(length > 0);
            sum += length;
            for (std::int64_t i = begin; i < begin + length; ++i) ++hits[document].at(i);
          }
          CHECK(sum <= row_tokens);
        }
        for (const auto& document : hits)
          CHECK(std::count(document.begin(), document.end(), 1) ==
                static_cast<std::int64_t>(document.size()));
        CHECK(rows == slow_pack(lengths, options, 1));
        CHECK(rows != rows_of(EpochPacker(file, options, 2)));
        options.seed = 5;
        CHECK(rows != rows_of(EpochPacker(file, options, 1)));
      }
  }
}

TEST_CASE("packing: a larger window fills rows better", "[packing]") {
  const TemporaryFolder folder;
  write_counting_file(folder / "a.h5", random_lengths(2000, 60));
  const TokenFile file(folder / "a.h5");
  const auto fill = [&](std::int64_t window) {
    const auto rows = rows_of(EpochPacker(file, {100, 4, window, 1}, 0));
    return static_cast<double>(file.token_count()) / (100.0 * static_cast<double>(rows.size()));
  };
  CHECK(fill(1) > 0.6);
  CHECK(fill(64) > 0.97);
}

TEST_CASE("packing: any row at any time is the row of the sequence", "[packing]") {
  const TemporaryFolder folder;
  write_counting_file(folder / "a.h5", random_lengths(4000, 60));
  const TokenFile file(folder / "a.h5");
  const PackingOptions options{50, 4, 8, 1};
  std::vector<Row> sequence;
  std::vector<std::int64_t> epoch_rows;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto rows = rows_of(EpochPacker(file, options, epoch));
    epoch_rows.push_back(static_cast<std::int64_t>(rows.size()));
    sequence.insert(sequence.end(), rows.begin(), rows.end());
  }
  REQUIRE(epoch_rows[0] > 2048);  // several restart points an epoch
  RowIndex index(file, options);
  CHECK(index.rows_of_epoch(1) == epoch_rows[1]);
  CHECK(index.rows_of_epoch(0) == epoch_rows[0]);
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    const auto row = static_cast<std::int64_t>(random() % sequence.size());
    CAPTURE(row);
    CHECK(row_of(index.row(row)) == sequence[row]);
    if (i % 20 == 7) CHECK(index.rows_of_epoch(2) == epoch_rows[2]);
  }
  RowIndex forward(file, options);
  for (std::size_t row = 0; row < sequence.size(); ++row)
    REQUIRE(row_of(forward.row(static_cast<std::int64_t>(row))) == sequence[row]);
  RowIndex far(file, options);
  const auto last = static_cast<std::int64_t>(sequence.size()) - 1;
  CHECK(row_of(far.row(last)) == sequence[last]);
  CHECK(row_of(far.row(1023)) == sequence[1023]);
  CHECK(row_of(far.row(1024)) == sequence[1024]);
}

TEST_CASE("packing: small files, empty documents, and what cannot work", "[packing]") {
  const TemporaryFolder folder;
  write_counting_file(folder / "one.h5", {3});
  const TokenFile one(folder / "one.h5");
  RowIndex index(one, {8, 4, 4, 1});
  for (std::int64_t row : {0, 5, 2000, 3}) CHECK(row_of(index.row(row)) == Row{{0, 0, 3}});
  CHECK(index.rows_of_epoch(17) == 1);
  write_counting_file(folder / "none.h5", {});
  const TokenFile none(folder / "none.h5");
  CHECK_THROWS_AS(RowIndex(none, {8, 4, 4, 1}), Error);
  CHECK_THROWS_AS(RowIndex(one, {3, 4, 4, 1}), Error);
  CHECK_THROWS_AS(RowIndex(one, {8, 4, 0, 1}), Error);
  CHECK_THROWS_AS(index.row(-1), Error);
}
