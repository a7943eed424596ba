// SPDX-License-Identifier: Apache-2.0
// Bytes to tokens and back, and that decoded text is always valid UTF-8.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "data/tokenizer.h"

using namespace bdlm;

namespace {
/// nlohmann's strict UTF-8 check, which is not ours.
bool valid_utf8(const std::string& text) {
  try {
    nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}
}  // namespace

TEST_CASE("tokenizer: text survives", "[tokenizer]") {
  for (const std::string text : {"", "plain", "naïve 水 🜁 \u07ff\u0800\uffff", "tab\tnew\nline"}) {
    const auto tokens = ByteTokenizer::encode(text);
    CHECK(tokens.size() == text.size());
    CHECK(ByteTokenizer::decode(tokens) == text);
  }
  CHECK(ByteTokenizer::encode("\xff") == std::vector<std::int32_t>{255});
}

TEST_CASE("tokenizer: special and foreign ids show as such", "[tokenizer]") {
  CHECK(ByteTokenizer::decode(std::vector<std::int32_t>{'a', 256, 257, 258, -1}) ==
        "a<|end_of_text|><|mask|><|258|><|-1|>");
  CHECK(ByteTokenizer::decode(std::vector<std::int32_t>{'a', 0xe6, 0xb0, 'b', 0xff}) ==
        "a\uFFFD\uFFFDb\uFFFD");
}

TEST_CASE("tokenizer: decoded text is valid UTF-8, and valid text is untouched", "[tokenizer]") {
  std::mt19937 random(1);
  const int edges[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2,
                       0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
  int valid = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string bytes;
    const std::size_t length = 1 + random() % 5;
    while (bytes.size() < length) bytes += static_cast<char>(edges[random() % 21]);
    const std::string decoded = ByteTokenizer::decode(ByteTokenizer::encode(bytes));
    REQUIRE(valid_utf8(decoded));
    REQUIRE((decoded == bytes) == valid_utf8(bytes));
    valid += valid_utf8(bytes);
  }
  CHECK(valid > 100);
}

TEST_CASE("tokenizer: ids of an unknown tokenizer are shown as numbers", "[tokenizer]") {
  const std::vector<std::int32_t> ids = {72, 105};
  CHECK(display(ids, ByteTokenizer::info()) == "Hi");
  CHECK(display(ids, TokenFileInfo{}) == "72 105");
}
