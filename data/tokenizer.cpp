// SPDX-License-Identifier: Apache-2.0
// Bytes as tokens, and tokens as text that a terminal can show.
#include "data/tokenizer.h"

#include <fmt/format.h>

namespace bdlm {

// A constant, since the definition is one: printf '%s' "$definition" | sha256sum
const char* const ByteTokenizer::sha256 =
    "06d702ede16c7c6dc5ac7797f7a60bc900b3f98423df35bf9ca64a3926abf641";

TokenFileInfo ByteTokenizer::info() { return {vocab_size, name, sha256, end_of_text, mask, ""}; }

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size() + 1);  // callers add the end of the text
  for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

namespace {

/// Length of the well-formed UTF-8 sequence at the start of `tokens` (Unicode, table 3-7); 0: none.
std::size_t sequence_length(std::span<const std::int32_t> tokens) {
  const std::int32_t first = tokens[0];
  if (first < 0x80) return 1;
  std::size_t length = 0;
  std::int32_t low = 0x80, high = 0xbf;  // of the second byte: no overlong form, no surrogate
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  if (length == 0 || tokens.size() < length || tokens[1] < low || tokens[1] > high) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if (tokens[i] < 0x80 || tokens[i] > 0xbf) return 0;
  return length;
}

}  // namespace

std::string ByteTokenizer::decode(std::span<const std::int32_t> tokens) {
  std::string text;
  while (!tokens.empty()) {
    const std::int32_t id = tokens[0];
    std::size_t used = 1;
    if (id == end_of_text) {
      text += "<|end_of_text|>";
    } else if (id == mask) {
      text += "<|mask|>";
    } else if (id < 0 || id > mask) {
      text += fmt::format("<|{}|>", id);
    } else if (const std::size_t length = sequence_length(tokens); length == 0) {
      text += "\uFFFD";
    } else {
      used = length;
      for (std::int32_t byte : tokens.first(length)) text += static_cast<char>(byte);
    }
    tokens = tokens.subspan(used);
  }
  return text;
}

std::string display(std::span<const std::int32_t> tokens, const TokenFileInfo& info) {
  if (info.tokenizer == ByteTokenizer::name && info.tokenizer_sha256 == ByteTokenizer::sha256)
    return ByteTokenizer::decode(tokens);
  return fmt::format("{}", fmt::join(tokens, " "));
}

}  // namespace bdlm
