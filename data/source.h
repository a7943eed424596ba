// SPDX-License-Identifier: Apache-2.0
// The stream of packed rows that a run trains on: one token file, or a blend of several.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/packing.h"
#include "data/row.h"

namespace bdlm {

struct WeightedFile {
  std::string path;
  double weight = 1;  // share of the rows, relative to the other files
};

/// Spreads rows over files: of the first n rows a file has its exact share, to within one row a
/// file before it. A pure function of the row.
class Blend {
 public:
  explicit Blend(const std::vector<double>& weights);
  struct Place {
    std::size_t file = 0;
    std::int64_t row = 0;  // of that file
  };
  Place place(std::int64_t row) const;

 private:
  std::vector<std::uint64_t> shares_;  // of what the files before leave, in units of 2^-32
};

/// Rows are numbered from 0 without end: files start over, in another order, as often as needed.
/// The same on every rank. Any thread may ask for rows; they are made one at a time.
class DataSource {
 public:
  /// Opens the files. `vocab_size`, `mask_token_id` of the model: row() refuses tokens that are out
  /// of range or the mask, naming file, document and offset.
  DataSource(const std::vector<WeightedFile>& files, const PackingOptions& options,
             std::int64_t vocab_size, std::int64_t mask_token_id);

  PackedRow row(std::int64_t index) const;
  /// Rows of each file's first epoch, all files together. Later epochs differ by a few.
  std::int64_t rows_per_epoch() const;
  std::int64_t tokens_per_epoch() const;
  const TokenFile& file(std::size_t i) const { return *files_[i]; }
  std::size_t file_count() const { return files_.size(); }

 private:
  void append(PackedRow& row, const TokenFile& file, const Piece& piece) const;

  std::vector<std::unique_ptr<TokenFile>> files_;
  Blend blend_;
  std::int64_t vocab_size_, mask_token_id_;
  mutable std::mutex mutex_;
  mutable std::vector<RowIndex> indices_;  // a file each
};

/// corrupt() of several rows of the source at one optimizer step.
std::vector<CorruptedRow> corrupted_rows(const DataSource& source,
                                         std::span<const std::int64_t> rows,
                                         const Objective& objective, std::int64_t vocab_size,
                                         std::uint64_t seed, std::int64_t step);

}  // namespace bdlm
