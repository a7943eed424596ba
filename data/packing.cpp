// SPDX-License-Identifier: Apache-2.0
// First-fit packing over a window of shuffled documents.
#include "data/packing.h"

#include <algorithm>

#include "kernels/error.h"
#include "kernels/philox.h"

namespace bdlm {

std::int64_t shuffled(std::int64_t i, std::int64_t n, std::uint64_t seed, std::uint64_t stream) {
  // A Feistel network permutes 2 x `half` bits whatever its round function; walking along its cycle
  // until the value is below n makes it a permutation of 0 .. n-1 (Black and Rogaway, 2002). The
  // domain is less than four times n, so the walk is short.
  constexpr std::uint64_t rounds = 6;
  int half = 1;
  while (std::int64_t{1} << (2 * half) < n) ++half;
  const std::uint64_t low = (std::uint64_t{1} << half) - 1;
  const Philox philox(seed, RandomPurpose::document_order);
  auto x = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = x >> half, right = x & low;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t mixed = philox.bits(stream, round << 32 | right)[0];
      left = std::exchange(right, left ^ (mixed & low));
    }
    x = left << half | right;
  } while (x >= static_cast<std::uint64_t>(n));
  return static_cast<std::int64_t>(x);
}

EpochPacker::EpochPacker(const TokenFile& file, const PackingOptions& options, std::int64_t epoch)
    : file_(&file), options_(options), epoch_(epoch) {
  require(options.block_size > 0 && options.row_tokens >= options.block_size,
          "data.row_tokens {} is less than objective.block_size {}: a block must fit into a row",
          options.row_tokens, options.block_size);
  require(options.window > 0, "data.window {} must be at least 1", options.window);
}

void EpochPacker::refill() {
  const std::int64_t documents = file_->document_count();
  const std::int64_t longest = options_.row_tokens / options_.block_size * options_.block_size;
  while (static_cast<std::int64_t>(waiting_.size()) < options_.window && read_ < documents) {
    const std::int64_t document =
        shuffled(read_, documents, options_.seed, static_cast<std::uint64_t>(epoch_));
    const std::int64_t left = file_->document_length(document) - cut_;
    // What is left after a cut may use the row to its end: nothing comes after it.
    const std::int64_t length = left <= options_.row_tokens ? left : longest;
    if (length > 0) waiting_.push_back({document, cut_, length});
    cut_ += length;
    if (length == left) {
      ++read_;
      cut_ = 0;
    }
  }
}

std::vector<Piece> EpochPacker::next() {
  std::vector<Piece> row;
  std::int64_t room = options_.row_tokens;
  // One pass suffices: a piece that is passed over does not fit later either.
  std::size_t passed = 0;
  while (room > 0) {
    refill();
    if (passed == waiting_.size()) break;
    const Piece piece = waiting_[passed];
    if (piece.length > room) {
      ++passed;
      continue;
    }
    row.push_back(piece);
    room -= piece.length;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(passed));
  }
  return row;
}

namespace {
constexpr std::int64_t restart_every = 1024;  // rows; a restart point is a window of pieces
}

RowIndex::RowIndex(const TokenFile& file, const PackingOptions& options)
    : file_(&file), options_(options), epoch_starts_{0}, cursor_{0, 0, {file, options, 0}} {
  require(file.token_count() > 0, "{}: the token file holds no tokens", file.path());
  restarts_.push_back(cursor_);
}

std::vector<Piece> RowIndex::step() {
  std::vector<Piece> pieces = cursor_.packer.next();
  const bool restart = cursor_.row % restart_every == restart_every - 1;
  if (pieces.empty()) {
    ++cursor_.epoch;
    cursor_.packer = EpochPacker(*file_, options_, cursor_.epoch);
    if (cursor_.epoch == static_cast<std::int64_t>(epoch_starts_.size()))
      epoch_starts_.push_back(cursor_.row);
    pieces = cursor_.packer.next();
  }
  ++cursor_.row;
  if (restart && cursor_.row > restarts_.back().row) restarts_.push_back(cursor_);
  return pieces;
}

std::vector<Piece> RowIndex::row(std::int64_t row) {
  require(row >= 0, "{}: packed row {} was asked for; rows count from 0", file_->path(), row);
  const auto after = std::upper_bound(restarts_.begin(), restarts_.end(), row,
                                      [](std::int64_t r, const State& s) { return r < s.row; });
  const State& nearest = *std::prev(after);
  if (cursor_.row > row || nearest.row > cursor_.row) cursor_ = nearest;
  while (cursor_.row < row) step();
  return step();
}

std::int64_t RowIndex::rows_of_epoch(std::int64_t epoch) {
  const auto known = [&] { return static_cast<std::int64_t>(epoch_starts_.size()) - 1; };
  if (known() <= epoch) {
    cursor_ = restarts_.back();
    while (known() <= epoch) step();
  }
  return epoch_starts_[epoch + 1] - epoch_starts_[epoch];
}

}  // namespace bdlm
