// SPDX-License-Identifier: Apache-2.0
// Packed rows of one file and of a blend.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "data/source.h"
#include "files.h"

using namespace bdlm;
using Catch::Matchers::Contains;

TEST_CASE("source: rows hold the file's tokens, documents and loss mask", "[source]") {
  const TemporaryFolder folder;
  TokenFileInfo info;
  info.vocab_size = 1000;
  TokenFileWriter writer(folder / "a.h5", info);
  const std::vector<std::int64_t> lengths = {5, 33, 12, 70, 1, 9};
  std::int32_t next = 0;
  for (std::int64_t length : lengths) {
    std::vector<std::int32_t> tokens(length);
    std::vector<std::uint8_t> mask(length);
    for (std::int64_t i = 0; i < length; ++i) {
      mask[i] = next % 3 != 0;
      tokens[i] = next++;
    }
    writer.add(tokens, mask);
  }
  writer.finish();
  const DataSource source({{folder / "a.h5", 1}}, {40, 8, 4, 1}, 1000, 999);
  CHECK(source.tokens_per_epoch() == 130);
  std::map<std::int32_t, int> hits;
  for (std::int64_t r = 0; r < source.rows_per_epoch(); ++r) {
    const PackedRow row = source.row(r);
    CHECK(row.index == r);
    CHECK(row.size() <= 40);
    REQUIRE(row.eligible.size() == row.tokens.size());
    std::int64_t i = 0;
    for (std::int64_t length : row.documents) {
      for (std::int64_t k = 0; k < length; ++k, ++i) {
        ++hits[row.tokens[i]];
        CHECK(row.eligible[i] == (row.tokens[i] % 3 != 0));
        if (k > 0) CHECK(row.tokens[i] == row.tokens[i - 1] + 1);
      }
    }
    CHECK(i == row.size());
  }
  CHECK(hits.size() == 130);
  for (const auto& [token, times] : hits) CHECK(times == 1);
}

TEST_CASE("source: tokens that the model cannot take are named", "[source]") {
  const TemporaryFolder folder;
  write_counting_file(folder / "a.h5", {30, 30});
  const PackingOptions options{20, 5, 4, 1};
  const auto read_all = [&](std::int64_t vocab_size, std::int64_t mask_token_id) {
    return error_of([&] {
      const DataSource source({{folder / "a.h5", 1}}, options, vocab_size, mask_token_id);
      for (std::int64_t r = 0; r < source.rows_per_epoch(); ++r) source.row(r);
    });
  };
  CHECK(read_all(60, -1).empty());
  CHECK(read_all(61, 60).empty());
  CHECK_THAT(read_all(59, -1),
             Contains("a.h5: document 1 has token id 59 at offset 29") && Contains("vocab_size"));
  CHECK_THAT(read_all(60, 31), Contains("a.h5: document 1 has the mask id 31 at offset 1"));
}

TEST_CASE("source: a blend gives every file its share, row by row", "[source]") {
  for (const std::vector<double>& weights :
       {std::vector<double>{1}, {1, 1}, {3, 1}, {0.7, 0.2, 0.1}, {1e-3, 5, 2, 1}}) {
    double sum = 0;
    for (double weight : weights) sum += weight;
    const Blend blend(weights);
    std::vector<std::int64_t> taken(weights.size(), 0);
    for (std::int64_t row = 0; row < 20000; ++row) {
      const Blend::Place place = blend.place(row);
      REQUIRE(place.row == taken.at(place.file));  // its own rows, in order, none left out
      ++taken[place.file];
      for (std::size_t file = 0; file < weights.size(); ++file) {
        const double due = static_cast<double>(row + 1) * weights[file] / sum;
        REQUIRE(std::abs(static_cast<double>(taken[file]) - due) <
                1.001 + static_cast<double>(file));
      }
    }
  }
  const Blend::Place far = Blend({2, 1}).place(std::int64_t{3} << 50);
  CHECK(far.row > std::int64_t{1} << 49);
}

TEST_CASE("source: a blend of files", "[source]") {
  const TemporaryFolder folder;
  write_counting_file(folder / "a.h5", {10, 10, 10});
  write_counting_file(folder / "b.h5", {4});
  const PackingOptions options{10, 5, 4, 1};
  const DataSource source({{folder / "a.h5", 3}, {folder / "b.h5", 1}}, options, 1000, 999);
  CHECK(source.rows_per_epoch() == 4);
  std::int64_t small = 0;
  for (std::int64_t r = 0; r < 40; ++r) {
    const PackedRow row = source.row(r);
    CHECK(row.index == r);
    small += row.size() == 4;
  }
  CHECK(small == 10);
  CHECK(source.row(7).tokens == source.row(7).tokens);
  CHECK_THROWS_AS(DataSource({}, options, 1000, 999), Error);
  CHECK_THROWS_AS(DataSource({{folder / "a.h5", 0}}, options, 1000, 999), Error);
  Objective objective;
  objective.mask_token_id = 999;
  const std::vector<std::int64_t> rows = {3, 0};
  const auto corrupted = corrupted_rows(source, rows, objective, 1000, 2, 5);
  REQUIRE(corrupted.size() == 2);
  CHECK(corrupted[0].clean.index == 3);
  CHECK(corrupted[1].views == corrupt(source.row(0), objective, 1000, 2, 5).views);
}
