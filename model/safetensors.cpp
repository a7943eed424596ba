// SPDX-License-Identifier: Apache-2.0
// Opening safetensors files, one or shards, and converting their elements to double.
#include "model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/error.h"
#include "model/safetensors_header.h"

namespace bdlm {

using nlohmann::json;
namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct SafetensorsFolder::Mapping {
  explicit Mapping(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(file >= 0, "{} cannot be opened: {}", path, std::strerror(errno));
    struct stat status {};
    const bool known = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    void* memory = MAP_FAILED;
    if (known && status.st_size > 0) {
      size = static_cast<std::size_t>(status.st_size);
      memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    }
    const int error = errno;
    ::close(file);
    require(known, "{} is not a file", path);
    require(size == 0 || memory != MAP_FAILED, "{} cannot be mapped: {}", path,
            std::strerror(error));
    data = size == 0 ? nullptr : static_cast<const std::byte*>(memory);
  }
  ~Mapping() {
    if (data) ::munmap(const_cast<std::byte*>(data), size);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const std::byte* data = nullptr;
  std::size_t size = 0;
};

namespace {

/// Tensor -> shard, from the index file.
std::map<std::string, std::string> read_index(const std::string& path) {
  std::ifstream file(path);
  require(file.good(), "{} cannot be opened", path);
  std::map<std::string, std::string> out;
  try {
    out = json::parse(file).at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const json::exception& error) {
    fail("{} is no index of shards: {}", path, error.what());
  }
  for (const auto& [name, shard] : out) {
    require(!shard.empty() && fs::path(shard).filename() == shard,
            "{}: tensor '{}' is said to be in '{}', which is not a file name", path, name, shard);
  }
  return out;
}

template <class Bits, class Convert>
void convert_run(const std::byte* source, std::int64_t count, double* out, Convert convert) {
#pragma omp parallel for schedule(static) if (count > 1 << 16)
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits;  // tensors need not be aligned in the file
    std::memcpy(&bits, source + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
    out[i] = convert(bits);
  }
}

double half_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  double value = 0;
  if (exponent == 0) {
    value = std::ldexp(fraction, -24);  // zero and subnormals
  } else if (exponent < 31) {
    value = std::ldexp(1024 + fraction, exponent - 25);
  } else {
    value = fraction == 0 ? HUGE_VAL : std::nan("");
  }
  return bits & 0x8000 ? -value : value;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::string& folder) : folder_(folder) {
  const auto add = [this](const std::string& path) {
    mappings_.push_back(std::make_unique<Mapping>(path));
    for (auto& [name, entry] :
         parse_safetensors(path, mappings_.back()->data, mappings_.back()->size)) {
      const auto [place, fresh] = tensors_.emplace(name, std::move(entry));
      require(fresh, "tensor '{}' is in {} and in {}", name, place->second.file, path);
    }
  };

  const fs::path root(folder);
  const std::string single = (root / "model.safetensors").string();
  const std::string index = (root / "model.safetensors.index.json").string();
  if (fs::exists(single)) {
    add(single);
    return;
  }
  require(fs::exists(index),
          "{} has neither model.safetensors nor model.safetensors.index.json: give a Hugging Face "
          "folder with safetensors weights",
          folder);
  const auto shard_of = read_index(index);
  std::set<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.insert(shard);
  for (const std::string& shard : shards) {
    require(fs::exists(root / shard), "shard {} of {} is missing: fetch the whole model",
            (root / shard).string(), index);
    add((root / shard).string());
  }
  for (const auto& [name, shard] : shard_of) {
    const auto found = tensors_.find(name);
    require(found != tensors_.end() && fs::path(found->second.file).filename() == shard,
            "{} says that tensor '{}' is in {}, but it is not", index, name, shard);
  }
}

SafetensorsFolder::~SafetensorsFolder() = default;

const SafetensorsFolder::Entry& SafetensorsFolder::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), "{} has no tensor '{}'", folder_, name);
  return found->second;
}

void SafetensorsFolder::read(const std::string& name, std::int64_t begin, std::int64_t count,
                             double* out) const {
  const Entry& entry = at(name);
  std::int64_t elements = 1;
  for (const std::int64_t size : entry.shape) elements *= size;
  require(begin >= 0 && count >= 0 && count <= elements && begin <= elements - count,
          "elements {}..{} of tensor '{}' were asked for, it has {}", begin, begin + count, name,
          elements);
  const std::byte* source = entry.data + begin * element_bytes(entry.dtype);
  if (entry.dtype == "F64") {
    convert_run<double>(source, count, out, [](double value) { return value; });
  } else if (entry.dtype == "F32") {
    convert_run<float>(source, count, out, [](float value) { return value; });
  } else if (entry.dtype == "BF16") {
    convert_run<bfloat16>(source, count, out, [](bfloat16 v) { return static_cast<float>(v); });
  } else {
    convert_run<std::uint16_t>(source, count, out, half_to_double);
  }
}

}  // namespace bdlm
