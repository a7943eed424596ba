// SPDX-License-Identifier: Apache-2.0
// Parsing the header of a safetensors file. It is foreign input: nothing is believed before it is
// compared with the file's size.
#include "model/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/error.h"

namespace bdlm {
namespace {

using nlohmann::json;
using Entry = SafetensorsFolder::Entry;

/// The official reader has the same limit.
constexpr std::uint64_t longest_header = 100'000'000;

/// Finds a name that stands twice in the header's object: a plain parse would keep the last. Not a
/// callback of the parse: with that one its time is quadratic in the number of tensors.
class Names : public nlohmann::json_sax<json> {
 public:
  std::string twice;

  bool key(string_t& name) override {
    if (depth_ == 1 && !names_.insert(name).second) twice = name;
    return true;
  }
  bool start_object(std::size_t) override { return ++depth_, true; }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;  // json::parse says what is wrong
  }

 private:
  int depth_ = 0;
  std::set<std::string> names_;
};

json parse_header(const std::string& path, const char* begin, const char* end) {
  Names names;
  json header;
  try {
    json::sax_parse(begin, end, &names);
    header = json::parse(begin, end);
  } catch (const json::exception& error) {
    fail("{} is no safetensors file, its header is not JSON: {}", path, error.what());
  }
  require(header.is_object(), "{} is no safetensors file, its header is not a JSON object", path);
  require(names.twice.empty(), "{} has two tensors with the name '{}'", path, names.twice);
  return header;
}

struct Extent {
  std::uint64_t begin = 0, end = 0;  // bytes after the header
  std::string name;
};

/// One entry of the header, checked against the bytes that follow the header.
Entry parse_entry(const std::string& path, const std::string& name, const json& fields,
                  std::uint64_t available, Extent& extent) {
  Entry entry;
  std::vector<std::uint64_t> offsets, shape;
  try {
    entry.dtype = fields.at("dtype").get<std::string>();
    for (const json& size : fields.at("shape")) {
      require(size.is_number_unsigned(), "{}: tensor '{}' has the shape {}", path, name,
              fields.at("shape").dump());
      shape.push_back(size.get<std::uint64_t>());
    }
    for (const json& offset : fields.at("data_offsets")) {
      require(offset.is_number_unsigned(), "{}: tensor '{}' has the data_offsets {}", path, name,
              fields.at("data_offsets").dump());
      offsets.push_back(offset.get<std::uint64_t>());
    }
  } catch (const json::exception& error) {
    fail("{}: the header's entry '{}' is damaged: {}", path, name, error.what());
  }
  require(offsets.size() == 2 && offsets[0] <= offsets[1] && offsets[1] <= available,
          "{}: tensor '{}' should be at bytes {} of {}: the file is truncated or damaged", path,
          name, fields.at("data_offsets").dump(), available);
  const std::int64_t width = element_bytes(entry.dtype);
  require(width > 0, "{}: tensor '{}' has dtype {}, possible are F64, F32, BF16 and F16", path,
          name, entry.dtype);

  // Elements are bounded by the file's bytes at every step, so that no product overflows.
  std::uint64_t elements = 1;
  const bool empty = std::ranges::find(shape, 0u) != shape.end();
  for (const std::uint64_t size : shape) {
    require(empty || size <= available / elements,
            "{}: tensor '{}' of shape {} is larger than "
            "the file",
            path, name, fields.at("shape").dump());
    elements *= empty ? 0 : size;
    entry.shape.push_back(static_cast<std::int64_t>(size));
  }
  if (empty) elements = 0;
  require(elements * static_cast<std::uint64_t>(width) == offsets[1] - offsets[0],
          "{}: tensor '{}' has {} elements of {} in {} bytes", path, name, elements, entry.dtype,
          offsets[1] - offsets[0]);
  entry.file = path;
  extent = {offsets[0], offsets[1], name};
  return entry;
}

/// The format allows neither overlaps nor holes; both mean that offsets are damaged.
void check_extents(const std::string& path, std::vector<Extent> extents, std::uint64_t available) {
  std::ranges::sort(extents, {}, [](const Extent& e) { return std::pair(e.begin, e.end); });
  std::uint64_t end = 0;
  for (const Extent& extent : extents) {
    require(extent.begin == end, "{}: tensor '{}' begins at byte {} where {} was to be: {}", path,
            extent.name, extent.begin, end,
            extent.begin < end ? "tensors overlap" : "there is a hole");
    end = extent.end;
  }
  require(end == available, "{}: {} bytes follow the last tensor", path, available - end);
}

}  // namespace

std::int64_t element_bytes(const std::string& dtype) {
  return dtype == "F64" ? 8 : dtype == "F32" ? 4 : dtype == "BF16" || dtype == "F16" ? 2 : 0;
}

std::map<std::string, Entry> parse_safetensors(const std::string& path, const std::byte* data,
                                               std::size_t size) {
  std::uint64_t header_bytes = 0;
  require(size >= sizeof header_bytes, "{} has {} bytes: it is truncated or no safetensors file",
          path, size);
  std::memcpy(&header_bytes, data, sizeof header_bytes);
  require(header_bytes <= size - sizeof header_bytes && header_bytes <= longest_header,
          "{} has {} bytes and claims a header of {}: it is truncated or no safetensors file", path,
          size, header_bytes);
  const char* header_begin = reinterpret_cast<const char*>(data) + sizeof header_bytes;
  const json header = parse_header(path, header_begin, header_begin + header_bytes);

  const std::uint64_t available = size - sizeof header_bytes - header_bytes;
  const std::byte* payload = data + sizeof header_bytes + header_bytes;
  std::map<std::string, Entry> out;
  std::vector<Extent> extents;
  for (const auto& [name, fields] : header.items()) {
    if (name == "__metadata__") continue;
    Entry entry = parse_entry(path, name, fields, available, extents.emplace_back());
    entry.data = payload + extents.back().begin;
    out.emplace(name, std::move(entry));
  }
  check_extents(path, std::move(extents), available);
  return out;
}

}  // namespace bdlm
