// SPDX-License-Identifier: Apache-2.0
// Writing one safetensors file, chunk by chunk, into a temporary that is renamed at the end.
#include "model/safetensors_write.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/error.h"

namespace bdlm {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t chunk_elements = 1 << 20;

/// A file that is deleted unless it was published under its final name.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path) : path_(path), temporary_(path + ".partial") {
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check(file_ >= 0);
  }
  ~TemporaryFile() {
    if (file_ >= 0) ::close(file_);
    if (!published_) ::unlink(temporary_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    auto* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(file_, next, bytes);
      if (written < 0 && errno == EINTR) continue;
      check(written > 0);
      next += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }
  void publish() {
    check(::fsync(file_) == 0);
    const int file = std::exchange(file_, -1);
    check(::close(file) == 0);  // network file systems report a full disk here
    check(::rename(temporary_.c_str(), path_.c_str()) == 0);
    published_ = true;
    sync_folder();
  }

 private:
  void check(bool good) const {
    require(good, "{} cannot be written: {}", path_, std::strerror(errno));
  }
  /// Makes the rename last through a crash; not every file system can, which loses nothing else.
  void sync_folder() const {
    const fs::path folder = fs::path(path_).parent_path();
    const int handle = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
    if (handle < 0) return;
    ::fsync(handle);
    ::close(handle);
  }

  std::string path_, temporary_;
  int file_ = -1;
  bool published_ = false;
};

std::int64_t elements_of(const SafetensorsTensor& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.shape) elements *= size;
  return elements;
}

/// Put together by hand: with thousands of tensors an object that keeps its order is too slow.
std::string header_of(const std::vector<SafetensorsTensor>& tensors) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::set<std::string> names;
  std::int64_t offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    require(names.insert(tensor.name).second, "two tensors have the name '{}'", tensor.name);
    const auto bytes = elements_of(tensor) * static_cast<std::int64_t>(size_of(tensor.dtype));
    const char* dtype = tensor.dtype == DType::f64   ? "F64"
                        : tensor.dtype == DType::f32 ? "F32"
                                                     : "BF16";
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        nlohmann::json(tensor.name).dump(), dtype, fmt::join(tensor.shape, ","),
                        offset, offset + bytes);
    offset += bytes;
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');  // tensors then start at multiples of 8
  return text;
}

template <class T>
void write_as(TemporaryFile& file, const double* values, std::int64_t count) {
  std::vector<T> out(static_cast<std::size_t>(count));
  std::transform(values, values + count, out.begin(), [](double value) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      return bfloat16(static_cast<float>(value));
    } else {
      return static_cast<T>(value);
    }
  });
  file.write(out.data(), out.size() * sizeof(T));
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors) {
  const std::string header = header_of(tensors);
  const std::uint64_t length = header.size();
  TemporaryFile file(path);
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  std::vector<double> values;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::int64_t elements = elements_of(tensor);
    for (std::int64_t begin = 0; begin < elements; begin += chunk_elements) {
      const std::int64_t count = std::min(chunk_elements, elements - begin);
      values.resize(static_cast<std::size_t>(count));
      tensor.produce(begin, count, values.data());
      if (tensor.dtype == DType::f64) write_as<double>(file, values.data(), count);
      if (tensor.dtype == DType::f32) write_as<float>(file, values.data(), count);
      if (tensor.dtype == DType::bf16) write_as<bfloat16>(file, values.data(), count);
    }
  }
  file.publish();
}

}  // namespace bdlm
