// SPDX-License-Identifier: Apache-2.0
// From text and JSONL to token files: what `bdlm data prepare` does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace bdlm {

struct PrepareOptions {
  std::vector<std::string> text;   // plain text files
  std::vector<std::string> jsonl;  // one JSON object a line (docs/formats.md)
  std::string out;
  std::optional<std::string> separator;  // text: the line between documents; unset: a file is one
  std::int64_t document_bytes = 0;  // text: cut at the first paragraph end after so many; 0: no
  double holdout = 0;               // share of the documents that go to holdout_out
  std::string holdout_out;
  std::int64_t vocab_size = 0;  // of "tokens" arrays; 0: text, with the byte tokenizer
  std::int64_t eos_token_id = -1, mask_token_id = -1;  // of "tokens" arrays
  std::string source;  // stored in the file; empty: the names of the inputs
};

struct PreparedCounts {
  std::int64_t documents = 0, tokens = 0, eligible = 0;
};

struct Prepared {
  PreparedCounts out, holdout;
};

/// Tokenizes on all cores; the files do not depend on how many. `progress(done, total)`: bytes of
/// input, called now and then from the calling thread. A bad line ends it with an Error that names
/// file:line, and leaves no file.
Prepared prepare(const PrepareOptions& options,
                 const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace bdlm
