// SPDX-License-Identifier: Apache-2.0
// From text and JSONL to token files.
#include <omp.h>

#include <catch2/catch.hpp>

#include "data/prepare.h"
#include "data/records.h"
#include "data/tokenizer.h"
#include "files.h"

using namespace bdlm;
using Catch::Matchers::Contains;

namespace {

/// Every document: its text, and a line of 0 and 1 for the loss mask.
std::vector<std::string> texts_of(const std::string& path) {
  const TokenFile file(path);
  std::vector<std::string> texts;
  for (std::int64_t d = 0; d < file.document_count(); ++d) {
    std::vector<std::int32_t> tokens(file.document_length(d));
    file.read_tokens(file.document_begin(d), tokens);
    texts.push_back(display(tokens, file.info()));
  }
  return texts;
}

std::string supervised(const Document& document) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < document.tokens.size(); ++i)
    if (document.loss_mask[i] == 1) tokens.push_back(document.tokens[i]);
  return ByteTokenizer::decode(tokens);
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("prepare: texts are cut at files, lines and sizes", "[prepare]") {
  const TemporaryFolder folder;
  write_text(folder / "a.txt", "one\ntwo\n\nthree\n%%\n\nfour\n\n\nfive");
  write_text(folder / "b.txt", "\r\nsix\r\n\r\nseven\r\n");
  write_text(folder / "c.txt", "\n\n");
  PrepareOptions options;
  options.text = {folder / "a.txt", folder / "b.txt", folder / "c.txt"};
  options.out = folder / "out.h5";
  const Prepared counts = prepare(options, nullptr);
  const std::string end = "<|end_of_text|>";
  CHECK(texts_of(options.out) ==
        Texts{"one\ntwo\n\nthree\n%%\n\nfour\n\n\nfive" + end, "six\r\n\r\nseven" + end});
  CHECK(counts.out.documents == 2);
  CHECK(counts.out.tokens == 44);
  CHECK(counts.out.eligible == 44);
  CHECK(TokenFile(options.out).info().source == "a.txt, b.txt, c.txt");
  CHECK(!TokenFile(options.out).verify().empty());

  options.separator = "%%";
  prepare(options, nullptr);
  CHECK(texts_of(options.out) ==
        Texts{"one\ntwo\n\nthree" + end, "four\n\n\nfive" + end, "six\r\n\r\nseven" + end});
  options.separator = "";
  prepare(options, nullptr);
  CHECK(texts_of(options.out) == Texts{"one\ntwo" + end, "three\n%%" + end, "four" + end,
                                       "five" + end, "six" + end, "seven" + end});
  options.separator.reset();
  options.document_bytes = 10;
  prepare(options, nullptr);
  CHECK(texts_of(options.out) ==
        Texts{"one\ntwo\n\nthree\n%%" + end, "four\n\n\nfive" + end, "six\r\n\r\nseven" + end});
}

TEST_CASE("prepare: a record of every kind, and what of it is supervised", "[prepare]") {
  Document d = json_document(R"({"text": "h\u00e9llo\n"})", 0, -1);
  CHECK(ByteTokenizer::decode(d.tokens) == "héllo<|end_of_text|>");
  CHECK(supervised(d) == "héllo<|end_of_text|>");
  d = json_document(R"({"prompt": "1+1=", "completion": "2", "id": 7})", 0, -1);
  CHECK(ByteTokenizer::decode(d.tokens) == "1+1=2<|end_of_text|>");
  CHECK(supervised(d) == "2<|end_of_text|>");
  d = json_document(R"({"messages": [{"role": "system", "content": "S"},
      {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"},
      {"role": "user", "content": "V"}]})",
                    0, -1);
  CHECK(ByteTokenizer::decode(d.tokens) ==
        "<|system|>\nS\n<|user|>\nU\n<|assistant|>\nA<|end_of_text|><|user|>\nV\n<|end_of_text|>");
  CHECK(supervised(d) == "A<|end_of_text|>");
  d = json_document(R"({"tokens": [3, 0, 69999], "loss_mask": [1, false, 1]})", 70000, 5);
  CHECK(d.tokens == std::vector<std::int32_t>{3, 0, 69999});
  CHECK(d.loss_mask == std::vector<std::uint8_t>{1, 0, 1});
  CHECK(json_document(R"({"tokens": [3]})", 10, -1).loss_mask == std::vector<std::uint8_t>{1});
  CHECK(json_document(R"({"text": ""})", 0, -1).tokens.empty());
}

TEST_CASE("prepare: a bad line is named, and nothing is written", "[prepare]") {
  const TemporaryFolder folder;
  PrepareOptions options;
  options.jsonl = {folder / "in.jsonl"};
  options.out = folder / "out.h5";
  const auto error = [&](const std::string& line, std::int64_t vocab_size) {
    const std::string good = vocab_size > 0 ? R"({"tokens": [1]})" : R"({"text": "good"})";
    write_text(folder / "in.jsonl", good + "\n\n" + line + "\n" + good + "\n");
    options.vocab_size = vocab_size;
    options.mask_token_id = vocab_size > 0 ? 4 : -1;
    const std::string text = error_of([&] { prepare(options, nullptr); });
    CHECK_THAT(text, Contains((folder / "in.jsonl") + ":3: "));
    CHECK(folder.file_count() == 1);
    return text;
  };
  CHECK_THAT(error(R"({"text": "x)", 0), Contains("not valid JSON"));
  CHECK_THAT(error("[1]", 0), Contains("not a JSON object"));
  CHECK_THAT(error(R"({"txt": "x"})", 0), Contains("none of the keys"));
  CHECK_THAT(error(R"({"text": 5})", 0), Contains("\"text\" must be a string"));
  CHECK_THAT(error(R"({"prompt": "x"})", 0), Contains("\"completion\" must be a string"));
  CHECK_THAT(error(R"({"messages": "x"})", 0), Contains("must be an array"));
  CHECK_THAT(error(R"({"messages": [{"role": "user"}]})", 0), Contains("\"content\""));
  CHECK_THAT(error(R"({"tokens": [1]})", 0), Contains("--vocab-size"));
  CHECK_THAT(error(R"({"text": "x"})", 9), Contains("no \"tokens\""));
  CHECK_THAT(error(R"({"tokens": [1, 9]})", 9), Contains("token id 9"));
  CHECK_THAT(error(R"({"tokens": [-1]})", 9), Contains("token id -1"));
  CHECK_THAT(error(R"({"tokens": [18446744073709551615]})", 9), Contains("18446744073709551615"));
  CHECK_THAT(error(R"({"tokens": [1.5]})", 9), Contains("integers"));
  CHECK_THAT(error(R"({"tokens": [4]})", 9), Contains("mask id"));
  CHECK_THAT(error(R"({"tokens": [1, 2], "loss_mask": [1]})", 9), Contains("as long as"));
  CHECK_THAT(error(R"({"tokens": [1], "loss_mask": [2]})", 9), Contains("not 0 or 1"));
}

TEST_CASE("prepare: options that cannot work are refused", "[prepare]") {
  const TemporaryFolder folder;
  write_text(folder / "a.txt", "text");
  PrepareOptions good;
  good.text = {folder / "a.txt"};
  good.out = folder / "out.h5";
  const auto error = [&](auto change) {
    PrepareOptions options = good;
    change(options);
    return error_of([&] { prepare(options, nullptr); });
  };
  CHECK_THAT(error([](auto& o) { o.text.clear(); }), Contains("nothing to prepare"));
  CHECK_THAT(error([&](auto& o) { o.text = {folder / "no.txt"}; }), Contains("no such file"));
  CHECK_THAT(error([](auto& o) { o.holdout = 0.1; }), Contains("--holdout-out"));
  CHECK_THAT(error([](auto& o) { o.holdout = 1; }), Contains("[0, 1)"));
  CHECK_THAT(error([](auto& o) { o.vocab_size = 10; }), Contains("--vocab-size"));
  CHECK_THAT(error([](auto& o) { o.eos_token_id = 10; }), Contains("--vocab-size"));
  CHECK_THAT(error([](auto& o) { o.out = o.text[0]; }), Contains("input and output"));
  write_text(folder / "a.txt", "\n");
  CHECK_THAT(error([](auto&) {}), Contains("holds no document"));
  CHECK(folder.file_count() == 1);
}

TEST_CASE("prepare: the files do not depend on the number of threads", "[prepare]") {
  const TemporaryFolder folder;
  std::string text;  // more than a batch
  for (int i = 0; i < 500; ++i) text += std::string(i % 37 * 1000, 'a' + i % 26) + "\n\n";
  write_text(folder / "a.txt", text);
  std::vector<Texts> found;
  const int before = omp_get_max_threads();
  for (int threads : {1, 4}) {
    omp_set_num_threads(threads);
    PrepareOptions options;
    options.text = {folder / "a.txt"};
    options.separator = "";
    options.out = folder / "out.h5";
    options.holdout = 0.1;
    options.holdout_out = folder / "holdout.h5";
    std::int64_t last = 0;
    const Prepared counts = prepare(options, [&](std::int64_t done, std::int64_t) { last = done; });
    CHECK(last == static_cast<std::int64_t>(text.size()));
    CHECK(counts.out.documents + counts.holdout.documents == 486);  // 14 of 500 are empty
    CHECK(counts.holdout.documents == 48);
    found.push_back(texts_of(options.out));
    found.push_back(texts_of(options.holdout_out));
  }
  omp_set_num_threads(before);
  CHECK(found[0] == found[2]);
  CHECK(found[1] == found[3]);
  CHECK(found[0].size() == 438);
}
