// SPDX-License-Identifier: Apache-2.0
// One input record (a text, or a line of JSONL) as a document of tokens with a loss mask.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace bdlm {

struct Document {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> loss_mask;  // a value a token; 1: may be corrupted and scored
};

/// The bytes of the text without newlines around it, then end of text; empty for an empty text.
Document text_document(std::string_view text);

/// One JSON object with "text", "prompt" and "completion", "messages", or "tokens" (only this one
/// with vocab_size > 0: ids of a tokenizer of the user's). Throws an Error without the place.
Document json_document(std::string_view line, std::int64_t vocab_size, std::int64_t mask_token_id);

}  // namespace bdlm
