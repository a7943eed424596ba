// SPDX-License-Identifier: Apache-2.0
// Event files read back by a reader that knows only the two formats.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "kernels/error.h"
#include "trainer/tensorboard.h"

using namespace bdlm;

namespace {

template <class T>
T take(std::string_view& bytes) {
  REQUIRE(bytes.size() >= sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<std::uint8_t>(bytes);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

/// A protobuf message as field -> contents in order; numbers as their bytes.
std::multimap<int, std::string> fields(std::string_view bytes) {
  std::multimap<int, std::string> out;
  while (!bytes.empty()) {
    const std::uint64_t key = take_varint(bytes);
    const int type = static_cast<int>(key & 7);
    std::size_t size = type == 1 ? 8 : 4;
    if (type == 0) {
      const std::uint64_t value = take_varint(bytes);
      out.emplace(key >> 3, std::string(reinterpret_cast<const char*>(&value), 8));
      continue;
    }
    if (type == 2) size = take_varint(bytes);
    REQUIRE((type == 1 || type == 2 || type == 5));
    REQUIRE(bytes.size() >= size);
    out.emplace(key >> 3, std::string(bytes.substr(0, size)));
    bytes.remove_prefix(size);
  }
  return out;
}

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xA282EAD8u;
  return (rotated >> 17) | (rotated << 15);
}

std::vector<std::string> records(std::string_view bytes) {
  std::vector<std::string> out;
  while (!bytes.empty()) {
    const std::string_view head = bytes.substr(0, 8);
    const auto length = take<std::uint64_t>(bytes);
    REQUIRE(unmasked(take<std::uint32_t>(bytes)) == crc32c(head));
    REQUIRE(bytes.size() >= length + 4);
    out.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
    REQUIRE(unmasked(take<std::uint32_t>(bytes)) == crc32c(out.back()));
  }
  return out;
}

}  // namespace

TEST_CASE("CRC-32C of the known vectors") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAu);  // RFC 3720, B.4
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43u);
}

TEST_CASE("an event file holds its version and every scalar") {
  const auto folder = std::filesystem::temp_directory_path() / "bdlm_test_tensorboard/a/b";
  std::filesystem::remove_all(folder);
  std::string path;
  {
    EventFile file(folder.string());
    path = file.path();
    file.write(1, {{"train/loss", 2.5}});
    file.write(5'000'000'000, {{"train/loss", 1.25}, {"train/lr", 1e-4}});
  }
  CHECK(std::filesystem::path(path).filename().string().starts_with("events.out.tfevents."));
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string content = bytes.str();
  const auto events = records(content);
  REQUIRE(events.size() == 3);
  CHECK(fields(events[0]).find(3)->second == "brain.Event:2");
  CHECK(fields(events[0]).find(1)->second.size() == 8);

  auto last = fields(events[2]);
  std::int64_t step = 0;
  std::memcpy(&step, last.find(2)->second.data(), 8);
  CHECK(step == 5'000'000'000);
  const auto summary = fields(last.find(5)->second);
  REQUIRE(summary.count(1) == 2);
  auto value = summary.begin();
  CHECK(fields(value->second).find(1)->second == "train/loss");
  float number = 0;
  std::memcpy(&number, fields(value->second).find(2)->second.data(), 4);
  CHECK(number == 1.25F);
  std::memcpy(&number, fields((++value)->second).find(2)->second.data(), 4);
  CHECK(number == 1e-4F);
  std::filesystem::remove_all(folder.parent_path().parent_path());
}

TEST_CASE("a folder that cannot be written is named") {
  CHECK_THROWS_WITH(EventFile("/proc/bdlm"), Catch::Matchers::Contains("/proc/bdlm/events"));
}
