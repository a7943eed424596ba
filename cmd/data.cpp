// SPDX-License-Identifier: Apache-2.0
// bdlm data: makes token files, shows what is in them, checks them. Rank 0 works alone.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>

#include "cmd/commands.h"
#include "data/prepare.h"
#include "data/tokenizer.h"

namespace bdlm {
namespace {

std::string share(std::int64_t part, std::int64_t whole) {
  return fmt::format(
      "{:.1f} %", whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

void print_prepared(const std::string& path, const PreparedCounts& counts) {
  fmt::print("{}: {} documents, {} tokens, {} of them eligible ({})\n", path, counts.documents,
             counts.tokens, counts.eligible, share(counts.eligible, counts.tokens));
}

void run_prepare(const PrepareOptions& options) {
  std::function<void(std::int64_t, std::int64_t)> progress;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  if (terminal)
    progress = [](std::int64_t done, std::int64_t total) {
      fmt::print(stderr, "\rprepare: {:.0f} of {:.0f} MB, {}", static_cast<double>(done) / 1e6,
                 static_cast<double>(total) / 1e6, share(std::min(done, total), total));
    };
  const Prepared prepared = prepare(options, progress);
  if (terminal) fmt::print(stderr, "\n");
  print_prepared(options.out, prepared.out);
  if (!options.holdout_out.empty()) print_prepared(options.holdout_out, prepared.holdout);
}

/// A line a power of two.
void print_lengths(const TokenFile& file) {
  std::map<int, std::int64_t> documents;
  std::int64_t shortest = file.token_count(), longest = 0;
  for (std::int64_t d = 0; d < file.document_count(); ++d) {
    const std::int64_t length = file.document_length(d);
    shortest = std::min(shortest, length);
    longest = std::max(longest, length);
    ++documents[std::bit_width(static_cast<std::uint64_t>(length))];
  }
  if (documents.empty()) return;
  fmt::print("document length {} to {} tokens, {:.1f} on average\n", shortest, longest,
             static_cast<double>(file.token_count()) / static_cast<double>(file.document_count()));
  std::int64_t most = 0;
  for (const auto& [width, count] : documents) most = std::max(most, count);
  for (const auto& [width, count] : documents) {
    const std::int64_t low = width == 0 ? 0 : std::int64_t{1} << (width - 1);
    const std::int64_t high = (std::int64_t{1} << width) - 1;
    fmt::print("{:>10} - {:<10} {:>10} {}\n", low, high, count,
               std::string((count * 40 + most - 1) / most, '#'));
  }
}

std::int64_t count_eligible(const TokenFile& file) {
  if (!file.has_loss_mask()) return file.token_count();
  std::vector<std::uint8_t> part(1 << 16);
  std::int64_t eligible = 0;
  const auto step = static_cast<std::int64_t>(part.size());
  for (std::int64_t begin = 0; begin < file.token_count(); begin += step) {
    const std::span now(part.data(), std::min(step, file.token_count() - begin));
    file.read_loss_mask(begin, now);
    eligible += std::count(now.begin(), now.end(), 1);
  }
  return eligible;
}

std::string id_or_none(std::int64_t id) { return id < 0 ? "not said" : fmt::format("{}", id); }

void run_inspect(const std::string& path, std::int64_t documents, std::int64_t tokens) {
  const TokenFile file(path);
  const TokenFileInfo& info = file.info();
  fmt::print("{}\nsource: {}\ntokenizer: {}\n", path,
             info.source.empty() ? "not said" : info.source,
             info.tokenizer.empty() ? "not said" : info.tokenizer);
  fmt::print("vocab_size {}, eos id {}, mask id {}\n", info.vocab_size,
             id_or_none(info.eos_token_id), id_or_none(info.mask_token_id));
  const std::int64_t eligible = count_eligible(file);
  fmt::print("{} documents, {} tokens, {} of them eligible ({})\n", file.document_count(),
             file.token_count(), eligible, share(eligible, file.token_count()));
  print_lengths(file);
  for (std::int64_t d = 0; d < std::min(documents, file.document_count()); ++d) {
    const std::int64_t length = file.document_length(d);
    std::vector<std::int32_t> ids(std::min(length, tokens));
    file.read_tokens(file.document_begin(d), ids);
    fmt::print("--- document {}, {} tokens\n{}{}\n", d, length, display(ids, info),
               length > tokens ? " ..." : "");
  }
}

void run_verify(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const TokenFile file(path);
    const std::vector<std::string> checked = file.verify();
    fmt::print("{}: good; {} documents, {} tokens, checksums of {}\n", path, file.document_count(),
               file.token_count(),
               checked.empty() ? "nothing (the file has none)"
                               : fmt::format("{}", fmt::join(checked, ", ")));
  }
}

/// `work` on rank 0, nothing on the others.
std::function<int(MpiSession&)> alone(std::function<void()> work) {
  return [work = std::move(work)](MpiSession& session) {
    if (session.rank() == 0) work();
    return 0;
  };
}

void add_prepare(CLI::App& data, Choice& choice) {
  CLI::App* app = data.add_subcommand("prepare", "Makes a token file from text or JSONL");
  const auto options = std::make_shared<PrepareOptions>();
  const auto tokenizer = std::make_shared<std::string>(ByteTokenizer::name);
  const auto separator = std::make_shared<std::string>("file");
  app->add_option("--text", options->text, "Plain text files")->type_name("FILE");
  app->add_option("--jsonl", options->jsonl,
                  "Files with a JSON object a line: text | prompt, completion | messages | tokens, "
                  "loss_mask")
      ->type_name("FILE");
  app->add_option("--out", options->out, "Token file to write")->required()->type_name("FILE");
  app->add_option("--tokenizer", *tokenizer,
                  "bytes: a token a byte, and end of text after each "
                  "document")
      ->check(CLI::IsMember({ByteTokenizer::name}))
      ->capture_default_str();
  app->add_option("--document-separator", *separator,
                  "Line between the documents of a text; 'blank': an empty line; 'file': each file "
                  "is one document")
      ->type_name("LINE")
      ->capture_default_str();
  app->add_option("--document-bytes", options->document_bytes,
                  "Also ends a text's document at the first empty line after so many bytes")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--holdout", options->holdout,
                  "Share of the documents, evenly spaced, that goes to --holdout-out");
  app->add_option("--holdout-out", options->holdout_out, "Token file for evaluation")
      ->type_name("FILE");
  app->add_option("--vocab-size", options->vocab_size, "Of \"tokens\" arrays")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  app->add_option("--eos-id", options->eos_token_id, "Of \"tokens\" arrays, stored in the file");
  app->add_option("--mask-id", options->mask_token_id,
                  "Of \"tokens\" arrays, stored in the file; it may not occur");
  app->add_option("--source", options->source,
                  "Where the data is from, stored in the file; default: the inputs' names");
  app->footer(
      "Example:\n"
      "  bdlm data prepare --text book.txt --document-separator blank --out train.h5 \\\n"
      "    --holdout 0.02 --holdout-out eval.h5");
  app->callback([=, &choice] {
    if (*separator != "file") options->separator = *separator == "blank" ? "" : *separator;
    choice.run = alone([options] { run_prepare(*options); });
  });
}

void add_inspect(CLI::App& data, Choice& choice) {
  struct Options {
    std::string path;
    std::int64_t documents = 3, tokens = 200;
  };
  CLI::App* app = data.add_subcommand("inspect", "Shows counts, lengths and some documents");
  const auto options = std::make_shared<Options>();
  app->add_option("file", options->path, "Token file")->required()->type_name("FILE");
  app->add_option("--documents", options->documents, "Documents to show")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--tokens", options->tokens, "Tokens to show of each")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->footer("Example:\n  bdlm data inspect train.h5 --documents 1");
  app->callback([=, &choice] {
    choice.run =
        alone([options] { run_inspect(options->path, options->documents, options->tokens); });
  });
}

void add_verify(CLI::App& data, Choice& choice) {
  CLI::App* app =
      data.add_subcommand("verify", "Checks checksums, ids, the mask id and document offsets");
  const auto paths = std::make_shared<std::vector<std::string>>();
  app->add_option("files", *paths, "Token files")->required()->type_name("FILE");
  app->footer(
      "Example:\n  bdlm data verify train.h5 eval.h5\nExit status 2 if a file is not good, with what is wrong.");
  app->callback([=, &choice] { choice.run = alone([paths] { run_verify(*paths); }); });
}

}  // namespace

void add_data(CLI::App& app, Choice& choice) {
  CLI::App* data = app.add_subcommand("data", "Makes, shows and checks token files");
  data->require_subcommand(1);
  data->footer("Example:\n  bdlm data prepare --text book.txt --out train.h5");
  add_prepare(*data, choice);
  add_inspect(*data, choice);
  add_verify(*data, choice);
}

}  // namespace bdlm
