// SPDX-License-Identifier: Apache-2.0
// Reading token files. HDF5 tells where each dataset lies in the file; the bytes themselves are
// mapped, so that a file larger than memory costs nothing and opening it takes no time.
#include "data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "data/hdf5.h"
#include "kernels/error.h"

namespace bdlm {
namespace {

constexpr const char* format_name = "bdlm.tokens/1";

hdf5::Handle open_file(const std::string& path) {
  const hdf5::Quiet quiet;
  const hdf5::Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access.id(), false, true);  // some shared file systems cannot lock
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose};
}

/// Why HDF5 cannot open what is there.
[[noreturn]] void fail_open(const std::string& path) {
  const hdf5::Quiet quiet;
  if (H5Fis_hdf5(path.c_str()) > 0)
    fail(
        "{}: the file is cut short or damaged; copy it again, or make it again with "
        "bdlm data prepare",
        path);
  fail("{}: not an HDF5 file; bdlm data prepare makes token files from text and JSONL", path);
}

struct Extent {
  std::int64_t offset = 0, count = 0;
  int width = 1;
  bool is_signed = false;
  std::string checksum;
};

/// Where a dataset lies. `offset` is not set if it has no elements.
Extent locate(hid_t file, const std::string& path, const char* name) {
  const hdf5::Quiet quiet;
  const hdf5::Handle dataset(H5Dopen2(file, name, H5P_DEFAULT), H5Dclose);
  require(dataset.ok(),
          "{}: dataset /{} cannot be opened; docs/formats.md says what a token file "
          "holds",
          path, name);
  const hdf5::Handle type(H5Dget_type(dataset.id()), H5Tclose);
  const hdf5::Handle space(H5Dget_space(dataset.id()), H5Sclose);
  const hdf5::Handle creation(H5Dget_create_plist(dataset.id()), H5Pclose);
  const std::size_t width = H5Tget_size(type.id());
  require(H5Tget_class(type.id()) == H5T_INTEGER &&
              (width == 1 || H5Tget_order(type.id()) == H5T_ORDER_LE) && width <= 8 &&
              (width & (width - 1)) == 0,
          "{}: dataset /{} must hold little-endian integers of 1, 2, 4 or 8 bytes", path, name);
  require(H5Sget_simple_extent_ndims(space.id()) == 1, "{}: dataset /{} must have one dimension",
          path, name);
  require(
      H5Pget_layout(creation.id()) == H5D_CONTIGUOUS && H5Pget_external_count(creation.id()) == 0,
      "{}: dataset /{} is chunked, compressed or external and cannot be mapped; write it without "
      "chunks, compression and maxshape, or run h5repack -l CONTI -f NONE",
      path, name);
  Extent extent;
  extent.count = H5Sget_simple_extent_npoints(space.id());
  extent.width = static_cast<int>(width);
  extent.is_signed = H5Tget_sign(type.id()) == H5T_SGN_2;
  extent.checksum = hdf5::read_string(dataset.id(), "xxh64").value_or("");
  if (extent.count == 0) return extent;
  const haddr_t offset = H5Dget_offset(dataset.id());
  require(offset != HADDR_UNDEF, "{}: dataset /{} was created but never written", path, name);
  extent.offset = static_cast<std::int64_t>(offset);
  return extent;
}

template <class T>
T load(const std::byte* data, std::int64_t i) {
  T value;  // datasets need not be aligned in the file
  std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

std::int64_t TokenFile::Column::at(std::int64_t i) const {
  switch (width) {
    case 1:
      return is_signed ? load<std::int8_t>(data, i) : load<std::uint8_t>(data, i);
    case 2:
      return is_signed ? load<std::int16_t>(data, i) : load<std::uint16_t>(data, i);
    case 4:
      return is_signed ? std::int64_t{load<std::int32_t>(data, i)}
                       : std::int64_t{load<std::uint32_t>(data, i)};
    default:
      return load<std::int64_t>(data, i);  // an unsigned value above 2^63 reads as negative
  }
}

TokenFile::TokenFile(std::string path) : path_(std::move(path)) {
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  require(file >= 0, "{}: cannot open the token file: {}", path_, std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  void* map = nullptr;
  if (regular && status.st_size > 0) {
    map = ::mmap(nullptr, status.st_size, PROT_READ, MAP_SHARED, file, 0);
    map_bytes_ = status.st_size;
  }
  const int error = errno;
  ::close(file);
  require(regular, "{}: not a regular file", path_);
  require(map != MAP_FAILED, "{}: cannot map the file into memory: {}", path_,
          std::strerror(error));
  map_ = static_cast<const std::byte*>(map);
  try {
    open_datasets();
    check_offsets();
  } catch (...) {
    if (map_ != nullptr) ::munmap(map, map_bytes_);
    throw;
  }
}

TokenFile::~TokenFile() {
  if (map_ != nullptr) ::munmap(const_cast<std::byte*>(map_), map_bytes_);
}

void TokenFile::open_datasets() {
  const hdf5::Handle file = open_file(path_);
  if (!file.ok()) fail_open(path_);
  const std::string format = hdf5::read_string(file.id(), "format").value_or("");
  require(format == format_name, "{}: attribute format is '{}', a token file has '{}'", path_,
          format, format_name);
  const auto text = [&](const char* name) {
    return hdf5::read_string(file.id(), name).value_or("");
  };
  info_.vocab_size = hdf5::read_integer(file.id(), "vocab_size").value_or(0);
  require(info_.vocab_size > 0, "{}: attribute vocab_size must be there and above 0", path_);
  info_.tokenizer = text("tokenizer");
  info_.tokenizer_sha256 = text("tokenizer_sha256");
  info_.source = text("source");
  info_.eos_token_id = hdf5::read_integer(file.id(), "eos_token_id").value_or(-1);
  info_.mask_token_id = hdf5::read_integer(file.id(), "mask_token_id").value_or(-1);

  const auto column = [&](const char* name) {
    const Extent extent = locate(file.id(), path_, name);
    const std::int64_t end = extent.offset + extent.count * extent.width;
    require(end <= map_bytes_, "{}: the file is cut short: dataset /{} ends at byte {} of {}",
            path_, name, end, map_bytes_);
    return Column{map_ + extent.offset, extent.count, extent.width, extent.is_signed,
                  extent.checksum};
  };
  tokens_ = column("tokens");
  documents_ = column("documents");
  if (H5Lexists(file.id(), "loss_mask", H5P_DEFAULT) > 0) {
    loss_mask_ = column("loss_mask");
    require(loss_mask_.count == tokens_.count, "{}: /loss_mask has {} values for {} tokens", path_,
            loss_mask_.count, tokens_.count);
  }
}

void TokenFile::check_offsets() const {
  require(documents_.count >= 1 && documents_.at(0) == 0 &&
              documents_.at(documents_.count - 1) == tokens_.count,
          "{}: /documents must have one offset more than there are documents, from 0 to the number "
          "of tokens, {}",
          path_, tokens_.count);
  for (std::int64_t d = 0; d < document_count(); ++d)
    require(document_begin(d) <= document_begin(d + 1),
            "{}: /documents must ascend, but document {} begins at {} and ends at {}", path_, d,
            document_begin(d), document_begin(d + 1));
}

void TokenFile::read_tokens(std::int64_t begin, std::span<std::int32_t> out) const {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t id = tokens_.at(begin + static_cast<std::int64_t>(i));
    const bool fits = id >= 0 && id <= std::numeric_limits<std::int32_t>::max();
    out[i] = fits ? static_cast<std::int32_t>(id) : -1;
  }
}

void TokenFile::read_loss_mask(std::int64_t begin, std::span<std::uint8_t> out) const {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = !has_loss_mask() || loss_mask_.at(begin + static_cast<std::int64_t>(i)) != 0;
}

std::vector<std::string> TokenFile::verify() const {
  std::vector<std::string> checked;
  const auto checksum = [&](const char* name, const Column& column) {
    if (column.checksum.empty()) return;
    const std::string found =
        fmt::format("{:016x}", XXH64(column.data, column.count * column.width, 0));
    require(found == column.checksum,
            "{}: /{} has checksum {}, its attribute xxh64 says {}: the file was altered or damaged",
            path_, name, found, column.checksum);
    checked.emplace_back(name);
  };
  checksum("tokens", tokens_);
  checksum("documents", documents_);
  if (has_loss_mask()) checksum("loss_mask", loss_mask_);
  for (std::int64_t d = 0; d < document_count(); ++d) {
    for (std::int64_t i = document_begin(d); i < document_begin(d + 1); ++i) {
      const std::int64_t id = tokens_.at(i);
      require(id >= 0 && id < info_.vocab_size,
              "{}: document {} has token id {} at offset {}, vocab_size is {}", path_, d, id,
              i - document_begin(d), info_.vocab_size);
      require(id != info_.mask_token_id,
              "{}: document {} has the mask id {} at offset {}; it may not occur in data", path_, d,
              id, i - document_begin(d));
    }
  }
  return checked;
}

}  // namespace bdlm
