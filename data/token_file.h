// SPDX-License-Identifier: Apache-2.0
// Token files, format bdlm.tokens/1: documents of token ids in HDF5 (docs/formats.md). Read by
// mapping the datasets into memory; written as a stream of documents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bdlm {

/// What a token file says about its tokens.
struct TokenFileInfo {
  std::int64_t vocab_size = 0;      // every id is below it
  std::string tokenizer;            // name; empty: not said
  std::string tokenizer_sha256;     // of the tokenizer's definition
  std::int64_t eos_token_id = -1;   // -1: not said
  std::int64_t mask_token_id = -1;  // never occurs; -1: not said
  std::string source;               // where the text is from
};

/// A token file open for reading. Nothing is copied: threads may read at once, and ranks of a
/// machine share its pages. Opening and closing call HDF5, so one thread at a time.
class TokenFile {
 public:
  /// Refuses, in one sentence that names the file: what is not HDF5 or of another format, cut
  /// short, without a dataset, not contiguous, or with offsets that do not ascend.
  explicit TokenFile(std::string path);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  const TokenFileInfo& info() const { return info_; }
  std::int64_t token_count() const { return tokens_.count; }
  std::int64_t document_count() const { return documents_.count - 1; }
  bool has_loss_mask() const { return loss_mask_.count > 0; }

  /// Offset of a document's first token; document_count() gives the end of the last.
  std::int64_t document_begin(std::int64_t document) const { return documents_.at(document); }
  std::int64_t document_length(std::int64_t document) const {
    return document_begin(document + 1) - document_begin(document);
  }

  /// Ids [begin, begin + out.size()); an id that does not fit becomes -1, which no vocabulary has.
  void read_tokens(std::int64_t begin, std::span<std::int32_t> out) const;
  /// 1: the token may be corrupted and scored. All 1 without a loss mask.
  void read_loss_mask(std::int64_t begin, std::span<std::uint8_t> out) const;

  /// Reads everything: checksums as far as the file has them, ids in range, the mask id absent.
  /// Throws an Error that names the first place that is wrong; returns the datasets that had a
  /// checksum.
  std::vector<std::string> verify() const;

 private:
  /// Integers of 1, 2, 4 or 8 bytes in the mapped file.
  struct Column {
    const std::byte* data = nullptr;
    std::int64_t count = 0;
    int width = 1;
    bool is_signed = false;
    std::string checksum;  // 16 hexadecimal digits of xxHash64; empty: none

    std::int64_t at(std::int64_t i) const;
  };
  void open_datasets();
  void check_offsets() const;

  std::string path_;
  TokenFileInfo info_;
  const std::byte* map_ = nullptr;
  std::int64_t map_bytes_ = 0;
  Column tokens_, documents_, loss_mask_;
};

/// Writes a token file. Tokens wait in unnamed files beside the target, which appears under its
/// name only when finish() has written all of it: a full disk or an error leaves no file.
class TokenFileWriter {
 public:
  /// Ids are stored in 16 bits where vocab_size allows.
  TokenFileWriter(std::string path, TokenFileInfo info);
  ~TokenFileWriter();

  /// One document. `loss_mask`: a value a token, or empty for all 1. Empty documents are left out.
  void add(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> loss_mask);
  void finish();

  std::int64_t token_count() const;
  std::int64_t document_count() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bdlm
