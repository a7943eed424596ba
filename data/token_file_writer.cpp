// SPDX-License-Identifier: Apache-2.0
// Writing token files. A contiguous dataset needs its size when it is created, and a stream has
// none before its end: ids wait in an unnamed file beside the target. HDF5 then makes the file with
// room for the datasets, and their bytes are written into it directly, where errors have a name.
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "data/hdf5.h"
#include "data/token_file.h"
#include "kernels/error.h"

namespace bdlm {
namespace {

void write_all(int file, const void* data, std::size_t bytes, std::int64_t offset,
               const std::string& target) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(file, from, bytes, offset);
    if (written < 0 && errno == EINTR) continue;
    require(written > 0, "{}: cannot write the token file: {}", target, std::strerror(errno));
    from += written;
    offset += written;
    bytes -= written;
  }
}

/// Bytes on their way into one dataset, with their checksum.
class Spool {
 public:
  explicit Spool(const std::string& target)
      : target_(target), hash_(XXH64_createState(), XXH64_freeState) {
    XXH64_reset(hash_.get(), 0);
    std::string name = target + ".spool.XXXXXX";
    file_ = ::mkostemp(name.data(), O_CLOEXEC);
    const int error = errno;
    if (file_ >= 0) ::unlink(name.c_str());  // gone however the program ends
    require(file_ >= 0, "{}: cannot write there: {}", target, std::strerror(error));
  }
  ~Spool() { ::close(file_); }
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  void append(const void* data, std::size_t bytes) {
    XXH64_update(hash_.get(), data, bytes);
    const char* from = static_cast<const char*>(data);
    buffer_.insert(buffer_.end(), from, from + bytes);
    if (buffer_.size() >= buffer_bytes) flush();
  }

  /// Everything, to `offset` of another file.
  void copy_to(int file, std::int64_t offset) {
    flush();
    std::vector<char> part(buffer_bytes);
    for (std::int64_t done = 0; done < bytes_;) {
      const ssize_t got = ::pread(file_, part.data(), part.size(), done);
      if (got < 0 && errno == EINTR) continue;
      require(got > 0, "{}: cannot read its temporary file back: {}", target_,
              std::strerror(errno));
      write_all(file, part.data(), got, offset + done, target_);
      done += got;
    }
  }

  std::int64_t size() const { return bytes_ + static_cast<std::int64_t>(buffer_.size()); }
  std::string checksum() const { return fmt::format("{:016x}", XXH64_digest(hash_.get())); }

 private:
  static constexpr std::size_t buffer_bytes = 1 << 20;

  void flush() {
    write_all(file_, buffer_.data(), buffer_.size(), bytes_, target_);
    bytes_ += static_cast<std::int64_t>(buffer_.size());
    buffer_.clear();
  }

  std::string target_;
  int file_ = -1;
  std::int64_t bytes_ = 0;  // in the file
  std::vector<char> buffer_;
  std::unique_ptr<XXH64_state_t, XXH_errorcode (*)(XXH64_state_t*)> hash_;
};

struct Descriptor {
  int id;
  ~Descriptor() { ::close(id); }
};

/// Fails where there is no room for a file of so many bytes. HDF5 does not survive a file that it
/// could not write: it crashes when the program ends.
void check_room(const std::string& temporary, std::int64_t bytes, const std::string& path) {
  const Descriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)};
  require(file.id >= 0, "{}: cannot write there: {}", path, std::strerror(errno));
  const bool room = ::fallocate(file.id, 0, 0, bytes) == 0 || errno == EOPNOTSUPP;
  require(room, "{}: cannot write the token file of {} bytes: {}", path, bytes,
          std::strerror(errno));
}

/// A contiguous dataset whose room in the file is taken at once; returns where it begins.
std::int64_t create_dataset(hid_t file, const char* name, hid_t type, std::int64_t count,
                            const std::string& checksum, const std::string& path) {
  const hsize_t size = count;
  const hdf5::Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
  const hdf5::Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_layout(creation.id(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER);
  const hdf5::Handle dataset(
      H5Dcreate2(file, name, type, space.id(), H5P_DEFAULT, creation.id(), H5P_DEFAULT), H5Dclose);
  require(dataset.ok() && hdf5::write_string(dataset.id(), "xxh64", checksum),
          "{}: HDF5 cannot create dataset /{}", path, name);
  return count > 0 ? static_cast<std::int64_t>(H5Dget_offset(dataset.id())) : 0;
}

}  // namespace

struct TokenFileWriter::State {
  std::string path;
  TokenFileInfo info;
  Spool tokens, documents, loss_mask;
  std::int64_t token_count = 0, document_count = 0;
  bool has_mask = false;  // some token is not eligible

  State(std::string target, TokenFileInfo about)
      : path(std::move(target)),
        info(std::move(about)),
        tokens(path),
        documents(path),
        loss_mask(path) {}
  bool wide() const { return info.vocab_size > 65536; }
  void append_offset() {
    const auto offset = static_cast<std::uint64_t>(token_count);
    documents.append(&offset, sizeof offset);
  }
  void write(const std::string& path_now);
};

TokenFileWriter::TokenFileWriter(std::string path, TokenFileInfo info) {
  require(info.vocab_size > 0 && info.vocab_size <= std::int64_t{1} << 31,
          "{}: vocab_size {} must be between 1 and 2^31", path, info.vocab_size);
  // The finished file takes this name; a device or a pipe would be lost.
  std::error_code code;
  const auto there = std::filesystem::status(path, code);
  require(!std::filesystem::exists(there) || std::filesystem::is_regular_file(there),
          "{}: is there and is no regular file: give another name to write to", path);
  state_ = std::make_unique<State>(std::move(path), std::move(info));
  state_->append_offset();
}

TokenFileWriter::~TokenFileWriter() = default;

std::int64_t TokenFileWriter::token_count() const { return state_->token_count; }
std::int64_t TokenFileWriter::document_count() const { return state_->document_count; }

void TokenFileWriter::add(std::span<const std::int32_t> tokens,
                          std::span<const std::uint8_t> loss_mask) {
  State& s = *state_;
  if (tokens.empty()) return;
  require(loss_mask.empty() || loss_mask.size() == tokens.size(),
          "{}: document {} has {} tokens and {} loss mask values", s.path, s.document_count,
          tokens.size(), loss_mask.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    require(
        tokens[i] >= 0 && tokens[i] < s.info.vocab_size && tokens[i] != s.info.mask_token_id,
        "{}: document {} has token id {} at offset {}; ids are below vocab_size {} and never the "
        "mask id {}",
        s.path, s.document_count, tokens[i], i, s.info.vocab_size, s.info.mask_token_id);
  if (s.wide()) {
    s.tokens.append(tokens.data(), tokens.size_bytes());
  } else {
    const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
    s.tokens.append(narrow.data(), narrow.size() * sizeof(std::uint16_t));
  }
  std::vector<std::uint8_t> mask(tokens.size(), 1);
  for (std::size_t i = 0; i < loss_mask.size(); ++i) mask[i] = loss_mask[i] != 0;
  for (std::uint8_t value : mask) s.has_mask |= value == 0;
  s.loss_mask.append(mask.data(), mask.size());
  s.token_count += static_cast<std::int64_t>(tokens.size());
  s.document_count += 1;
  s.append_offset();
}

void TokenFileWriter::finish() {
  // Renamed only when it is whole and on the disk.
  const std::string temporary = state_->path + ".tmp";
  try {
    state_->write(temporary);
    require(std::rename(temporary.c_str(), state_->path.c_str()) == 0,
            "{}: cannot give the finished file its name: {}", state_->path, std::strerror(errno));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void TokenFileWriter::State::write(const std::string& path_now) {
  constexpr std::int64_t attribute_bytes = 64 << 10;  // more than HDF5 takes for what is not data
  check_room(path_now, tokens.size() + documents.size() + loss_mask.size() + attribute_bytes, path);
  const hdf5::Quiet quiet;
  std::int64_t tokens_at = 0, documents_at = 0, mask_at = 0;
  {
    hdf5::Handle file(H5Fcreate(path_now.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
                      H5Fclose);
    require(file.ok(), "{}: HDF5 cannot create the file; is the folder writable?", path);
    tokens_at = create_dataset(file.id(), "tokens", wide() ? H5T_STD_U32LE : H5T_STD_U16LE,
                               token_count, tokens.checksum(), path);
    documents_at = create_dataset(file.id(), "documents", H5T_STD_U64LE, document_count + 1,
                                  documents.checksum(), path);
    if (has_mask)
      mask_at = create_dataset(file.id(), "loss_mask", H5T_STD_U8LE, token_count,
                               loss_mask.checksum(), path);
    bool ok = hdf5::write_string(file.id(), "format", "bdlm.tokens/1");
    ok &= hdf5::write_integer(file.id(), "vocab_size", info.vocab_size);
    ok &= hdf5::write_string(file.id(), "tokenizer", info.tokenizer);
    ok &= hdf5::write_string(file.id(), "tokenizer_sha256", info.tokenizer_sha256);
    ok &= hdf5::write_integer(file.id(), "eos_token_id", info.eos_token_id);
    ok &= hdf5::write_integer(file.id(), "mask_token_id", info.mask_token_id);
    ok &= hdf5::write_string(file.id(), "source", info.source);
    ok &= hdf5::write_integer(file.id(), "token_count", token_count);
    ok &= hdf5::write_integer(file.id(), "document_count", document_count);
    require(ok && file.close(), "{}: HDF5 cannot write the file; is the disk full?", path);
  }
  const Descriptor out{::open(path_now.c_str(), O_WRONLY | O_CLOEXEC)};
  require(out.id >= 0, "{}: cannot open the file again: {}", path, std::strerror(errno));
  tokens.copy_to(out.id, tokens_at);
  documents.copy_to(out.id, documents_at);
  if (has_mask) loss_mask.copy_to(out.id, mask_at);
  require(::fsync(out.id) == 0, "{}: cannot write the file to the disk: {}", path,
          std::strerror(errno));
}

}  // namespace bdlm
