// SPDX-License-Identifier: Apache-2.0
// Packed rows from token files.
#include "data/source.h"

#include <cmath>
#include <numeric>

#include "kernels/error.h"

namespace bdlm {
namespace {

std::vector<double> weights_of(const std::vector<WeightedFile>& files) {
  require(!files.empty(), "data.train names no token file");
  std::vector<double> weights;
  for (const WeightedFile& file : files) {
    require(std::isfinite(file.weight) && file.weight > 0,
            "{}: weight {} in the blend must be above 0", file.path, file.weight);
    weights.push_back(file.weight);
  }
  return weights;
}

}  // namespace

Blend::Blend(const std::vector<double>& weights) {
  double left = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double weight : weights) {
    shares_.push_back(
        static_cast<std::uint64_t>(std::llround(std::min(weight / left, 1.0) * 0x1.0p32)));
    left -= weight;
  }
  shares_.back() = std::uint64_t{1} << 32;
}

Blend::Place Blend::place(std::int64_t row) const {
  // Of the first n rows that reach a file it takes floor(n share), as evenly as integers can; the
  // others are numbered anew and reach the next file. Integers, so that no row is lost to rounding.
  __extension__ using wide = unsigned __int128;
  auto n = static_cast<std::uint64_t>(row);
  for (std::size_t file = 0; file < shares_.size(); ++file) {
    const auto before = static_cast<std::uint64_t>(wide{n} * shares_[file] >> 32);
    const auto with = static_cast<std::uint64_t>((wide{n} + 1) * shares_[file] >> 32);
    if (with > before) return {file, static_cast<std::int64_t>(before)};
    n -= before;
  }
  fail("packed row {} has no file: the last file of a blend takes what is left", row);
}

DataSource::DataSource(const std::vector<WeightedFile>& files, const PackingOptions& options,
                       std::int64_t vocab_size, std::int64_t mask_token_id)
    : blend_(weights_of(files)), vocab_size_(vocab_size), mask_token_id_(mask_token_id) {
  for (const WeightedFile& file : files) {
    files_.push_back(std::make_unique<TokenFile>(file.path));
    indices_.emplace_back(*files_.back(), options);
  }
}

PackedRow DataSource::row(std::int64_t index) const {
  const Blend::Place place = blend_.place(index);
  std::vector<Piece> pieces;
  {
    const std::lock_guard lock(mutex_);
    pieces = indices_[place.file].row(place.row);
  }
  PackedRow row;
  row.index = index;
  for (const Piece& piece : pieces) append(row, *files_[place.file], piece);
  return row;
}

void DataSource::append(PackedRow& row, const TokenFile& file, const Piece& piece) const {
  const std::size_t old = row.tokens.size();
  row.tokens.resize(old + piece.length);
  row.eligible.resize(old + piece.length);
  row.documents.push_back(piece.length);
  const std::span<std::int32_t> tokens = std::span(row.tokens).subspan(old);
  const std::int64_t begin = file.document_begin(piece.document) + piece.begin;
  file.read_tokens(begin, tokens);
  file.read_loss_mask(begin, std::span(row.eligible).subspan(old));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size_ && tokens[i] != mask_token_id_) continue;
    const std::int64_t offset = piece.begin + static_cast<std::int64_t>(i);
    if (tokens[i] >= 0 && tokens[i] == mask_token_id_)
      fail(
          "{}: document {} has the mask id {} at offset {}; objective.mask_token_id must be an id "
          "that never occurs in data",
          file.path(), piece.document, tokens[i], offset);
    fail(
        "{}: document {} has token id {} at offset {}, but the model's vocab_size is {}; was the "
        "file made for another tokenizer?",
        file.path(), piece.document, tokens[i], offset, vocab_size_);
  }
}

std::int64_t DataSource::rows_per_epoch() const {
  const std::lock_guard lock(mutex_);
  std::int64_t rows = 0;
  for (RowIndex& index : indices_) rows += index.rows_of_epoch(0);
  return rows;
}

std::int64_t DataSource::tokens_per_epoch() const {
  std::int64_t tokens = 0;
  for (const auto& file : files_) tokens += file->token_count();
  return tokens;
}

std::vector<CorruptedRow> corrupted_rows(const DataSource& source,
                                         std::span<const std::int64_t> rows,
                                         const Objective& objective, std::int64_t vocab_size,
                                         std::uint64_t seed, std::int64_t step) {
  std::vector<CorruptedRow> out;
  out.reserve(rows.size());
  for (std::int64_t row : rows)
    out.push_back(corrupt(source.row(row), objective, vocab_size, seed, step));
  return out;
}

}  // namespace bdlm
