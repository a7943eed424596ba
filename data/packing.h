// SPDX-License-Identifier: Apache-2.0
// Which tokens stand in which packed row: a pure function of (file, seed, epoch, row).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "data/token_file.h"

namespace bdlm {

struct PackingOptions {
  std::int64_t row_tokens = 4096;  // longest row; at least block_size
  std::int64_t block_size = 32;    // documents longer than a row are cut at multiples of it
  std::int64_t window = 64;        // pieces that wait for a row with room for them; at least 1
  std::uint64_t seed = 1;
};

/// Part of a document, and all of it if it is no longer than a row. In its row a document of its
/// own: positions start at 0 again.
struct Piece {
  std::int64_t document = 0;
  std::int64_t begin = 0, length = 0;  // tokens, inside the document
};

/// The i-th of 0 .. n-1 in a random order that `seed` and `stream` name; no table is kept.
std::int64_t shuffled(std::int64_t i, std::int64_t n, std::uint64_t seed, std::uint64_t stream);

/// Rows of one epoch, one after another. Documents come in shuffled order. A row takes, oldest
/// first, every piece that still fits, until `window` pieces that do not fit wait for the next row.
/// Each token is in one row of the epoch. A value: a copy goes on from the same place. The file
/// must outlive it.
class EpochPacker {
 public:
  EpochPacker(const TokenFile& file, const PackingOptions& options, std::int64_t epoch);
  /// Pieces of the next row; empty after the last.
  std::vector<Piece> next();

 private:
  void refill();

  const TokenFile* file_;
  PackingOptions options_;
  std::int64_t epoch_;
  std::int64_t read_ = 0;      // documents taken, in shuffled order
  std::int64_t cut_ = 0;       // of the document at read_: tokens that are already in pieces
  std::deque<Piece> waiting_;  // the window, oldest first
};

/// Any row of any epoch: rows are counted through, row 0 of epoch 1 after the last of epoch 0. Goes
/// forward from the nearest of the restart points that it keeps, so rows in order cost nothing
/// extra and a resumed run pays once for what it passes over. Not for several threads at once.
class RowIndex {
 public:
  /// The file must outlive it and hold at least one token.
  RowIndex(const TokenFile& file, const PackingOptions& options);

  std::vector<Piece> row(std::int64_t row);
  std::int64_t rows_of_epoch(std::int64_t epoch);

 private:
  struct State {
    std::int64_t row = 0, epoch = 0;  // of what next() gives
    EpochPacker packer;
  };
  /// Pieces of the row at the cursor, which moves on.
  std::vector<Piece> step();

  const TokenFile* file_;
  PackingOptions options_;
  std::vector<State> restarts_;             // ascending by row
  std::vector<std::int64_t> epoch_starts_;  // first row of every epoch reached so far
  State cursor_;
};

}  // namespace bdlm
