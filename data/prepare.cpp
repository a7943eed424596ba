// SPDX-License-Identifier: Apache-2.0
// Inputs are read in order by one thread, tokenized a batch at a time by all cores, and written in
// order: the files depend on the input only.
#include "data/prepare.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>

#include "data/records.h"
#include "data/tokenizer.h"
#include "kernels/error.h"

namespace bdlm {
namespace {

struct Record {
  std::string text;
  std::string place;  // file:line
  bool json = false;
};

class Preparation {
 public:
  Preparation(const PrepareOptions& options,
              const std::function<void(std::int64_t, std::int64_t)>& progress);
  Prepared run();

 private:
  TokenFileInfo info() const;
  void read_lines(const std::string& path, bool json);
  void push(std::string text, const std::string& path, std::int64_t line, bool json);
  void flush();
  void write(const Document& document);

  static constexpr std::int64_t batch_bytes = 8 << 20;

  const PrepareOptions& options_;
  const std::function<void(std::int64_t, std::int64_t)>& progress_;
  std::unique_ptr<TokenFileWriter> out_, holdout_;
  std::vector<Record> batch_;
  std::int64_t waiting_bytes_ = 0, bytes_done_ = 0, bytes_total_ = 0, documents_ = 0;
  Prepared counts_;
};

TokenFileInfo Preparation::info() const {
  TokenFileInfo info;
  if (options_.vocab_size > 0) {
    info.vocab_size = options_.vocab_size;
    info.eos_token_id = options_.eos_token_id;
    info.mask_token_id = options_.mask_token_id;
  } else {
    info = ByteTokenizer::info();
  }
  info.source = options_.source;
  if (!info.source.empty()) return info;
  constexpr std::size_t named = 8;
  std::vector<std::string> names;
  for (const auto* paths : {&options_.text, &options_.jsonl})
    for (const std::string& path : *paths)
      names.push_back(std::filesystem::path(path).filename().string());
  info.source = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + std::min(names.size(), named), ", "));
  if (names.size() > named) info.source += fmt::format(" and {} more", names.size() - named);
  return info;
}

void check(const PrepareOptions& options) {
  require(!options.text.empty() || !options.jsonl.empty(),
          "nothing to prepare: name input with --text or --jsonl");
  require(options.vocab_size == 0 || options.text.empty(),
          "--text is tokenized here and takes no --vocab-size; give token arrays with --jsonl");
  require(options.vocab_size > 0 || (options.eos_token_id < 0 && options.mask_token_id < 0),
          "--eos-id and --mask-id describe token arrays and need --vocab-size");
  require(options.holdout >= 0 && options.holdout < 1, "--holdout {} must be in [0, 1)",
          options.holdout);
  require((options.holdout > 0) == !options.holdout_out.empty(),
          "--holdout and --holdout-out go together");
  require(options.out != options.holdout_out, "--out and --holdout-out are both {}", options.out);
  for (const auto* paths : {&options.text, &options.jsonl})
    for (const std::string& path : *paths)
      require(path != options.out && path != options.holdout_out, "{} is input and output at once",
              path);
}

Preparation::Preparation(const PrepareOptions& options,
                         const std::function<void(std::int64_t, std::int64_t)>& progress)
    : options_(options), progress_(progress) {
  check(options);
  for (const auto* paths : {&options.text, &options.jsonl}) {
    for (const std::string& path : *paths) {
      require(std::filesystem::is_regular_file(path), "{}: no such file", path);
      bytes_total_ += static_cast<std::int64_t>(std::filesystem::file_size(path));
    }
  }
  out_ = std::make_unique<TokenFileWriter>(options.out, info());
  if (options.holdout > 0)
    holdout_ = std::make_unique<TokenFileWriter>(options.holdout_out, info());
}

Prepared Preparation::run() {
  for (const std::string& path : options_.text) read_lines(path, false);
  for (const std::string& path : options_.jsonl) read_lines(path, true);
  flush();
  require(counts_.out.documents + counts_.holdout.documents > 0,
          "the input holds no document, so {} was not written", options_.out);
  if (holdout_) holdout_->finish();
  out_->finish();
  return counts_;
}

void Preparation::read_lines(const std::string& path, bool json) {
  std::ifstream in(path, std::ios::binary);
  require(in.is_open(), "{}: cannot open: {}", path, std::strerror(errno));
  std::string line, document;
  std::int64_t number = 0, first = 1;  // lines; the first of the document
  const auto end_document = [&] {
    push(std::exchange(document, {}), path, first, false);
    first = number + 1;
  };
  while (std::getline(in, line)) {
    ++number;
    bytes_done_ += static_cast<std::int64_t>(line.size()) + 1;
    const std::string_view bare(line.data(), line.size() - (line.ends_with('\r') ? 1 : 0));
    if (json) {
      if (bare.find_first_not_of(" \t") != std::string_view::npos) push(line, path, number, true);
      continue;
    }
    if (options_.separator && bare == *options_.separator) {
      end_document();
      continue;
    }
    document += line;
    document += '\n';
    const auto bytes = static_cast<std::int64_t>(document.size());
    if (options_.document_bytes > 0 && bytes >= options_.document_bytes && bare.empty())
      end_document();
  }
  require(!in.bad(), "{}:{}: cannot read on: {}", path, number + 1, std::strerror(errno));
  if (!json) end_document();
}

void Preparation::push(std::string text, const std::string& path, std::int64_t line, bool json) {
  waiting_bytes_ += static_cast<std::int64_t>(text.size());
  batch_.push_back({std::move(text), fmt::format("{}:{}", path, line), json});
  if (waiting_bytes_ >= batch_bytes) flush();
}

void Preparation::flush() {
  const auto n = static_cast<std::int64_t>(batch_.size());
  std::vector<Document> documents(n);
  std::vector<std::exception_ptr> errors(n);
#pragma omp parallel for schedule(dynamic, 16)
  for (std::int64_t i = 0; i < n; ++i) {
    const Record& record = batch_[i];
    try {
      documents[i] = record.json
                         ? json_document(record.text, options_.vocab_size, options_.mask_token_id)
                         : text_document(record.text);
    } catch (const Error& error) {
      errors[i] = std::make_exception_ptr(Error(record.place + ": " + error.what()));
    } catch (...) {  // must not leave a parallel loop
      errors[i] = std::current_exception();
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if (errors[i]) std::rethrow_exception(errors[i]);
    write(documents[i]);
  }
  batch_.clear();
  waiting_bytes_ = 0;
  if (progress_) progress_(bytes_done_, bytes_total_);
}

void Preparation::write(const Document& document) {
  if (document.tokens.empty()) return;
  // Evenly spaced, so that both files cover all of the input whatever its order.
  const double share = options_.holdout, i = static_cast<double>(documents_++);
  const bool held = std::floor((i + 1) * share) > std::floor(i * share);
  (held ? *holdout_ : *out_).add(document.tokens, document.loss_mask);
  PreparedCounts& counts = held ? counts_.holdout : counts_.out;
  counts.documents += 1;
  counts.tokens += static_cast<std::int64_t>(document.tokens.size());
  for (std::uint8_t value : document.loss_mask) counts.eligible += value;
}

}  // namespace

Prepared prepare(const PrepareOptions& options,
                 const std::function<void(std::int64_t, std::int64_t)>& progress) {
  return Preparation(options, progress).run();
}

}  // namespace bdlm
