// SPDX-License-Identifier: Apache-2.0
// The built-in tokenizer: one token a byte, so any text in any language trains without a vocabulary
// file. Other vocabularies come in as token arrays (`bdlm data prepare --jsonl`, "tokens").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_file.h"

namespace bdlm {

struct ByteTokenizer {
  static constexpr std::int32_t end_of_text = 256;  // closes every document
  static constexpr std::int32_t mask = 257;
  static constexpr std::int64_t vocab_size = 258;
  static constexpr const char* name = "bytes";
  static constexpr const char* definition = "bdlm bytes: 0-255 bytes, 256 end of text, 257 mask";
  static const char* const sha256;  // of `definition`

  static TokenFileInfo info();  // without a source
  static std::vector<std::int32_t> encode(std::string_view text);
  /// Always valid UTF-8: what is no UTF-8 shows as U+FFFD; 256, 257 and ids above as <|...|>.
  static std::string decode(std::span<const std::int32_t> tokens);
};

/// Text of tokens for a reader: decoded if the file's tokenizer is known, else the ids.
std::string display(std::span<const std::int32_t> tokens, const TokenFileInfo& info);

}  // namespace bdlm
