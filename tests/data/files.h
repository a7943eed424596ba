// SPDX-License-Identifier: Apache-2.0
// Folders and token files that tests make and throw away.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "kernels/error.h"

namespace bdlm {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "bdlm_test_XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "cannot make {}", name);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::size_t file_count() const {
    return std::distance(std::filesystem::directory_iterator(path_), {});
  }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Token i of the whole file is i % 1000: every token tells where it is from.
inline void write_counting_file(const std::string& path, const std::vector<std::int64_t>& lengths) {
  TokenFileInfo info;
  info.vocab_size = 1000;
  TokenFileWriter writer(path, info);
  std::int32_t next = 0;
  for (std::int64_t length : lengths) {
    std::vector<std::int32_t> tokens(length);
    for (std::int32_t& token : tokens) token = next++ % 1000;
    writer.add(tokens, {});
  }
  writer.finish();
}

/// What the Error says that `work` ends with; empty if it ends well.
template <class Work>
std::string error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace bdlm
