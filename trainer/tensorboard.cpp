// SPDX-License-Identifier: Apache-2.0
// Event files: framing, checksums and the fields of tensorflow/core/util/event.proto in use.
#include "trainer/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "kernels/error.h"

namespace bdlm {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}();

/// Checksums of data that holds checksums are weak, so TFRecord turns and shifts them.
std::uint32_t masked(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u; }

template <class T>
void put_little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

// Protobuf: a field is its number and wire type, then its content.
enum WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes_of_length = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, int field, WireType type) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | type);
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, bytes_of_length);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_wall_time(std::string& out, double seconds) {
  put_key(out, 1, fixed64);
  put_little_endian(out, std::bit_cast<std::uint64_t>(seconds));
}

double wall_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ crc_table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  }
  return ~crc;
}

std::string tfrecord(std::string_view bytes) {
  std::string out;
  put_little_endian(out, static_cast<std::uint64_t>(bytes.size()));
  put_little_endian(out, masked(out));
  out += bytes;
  put_little_endian(out, masked(bytes));
  return out;
}

std::string scalar_event(double time, std::int64_t step,
                         const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    put_bytes(value, 1, tag);
    put_key(value, 2, fixed32);  // simple_value
    put_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(number)));
    put_bytes(summary, 1, value);
  }
  std::string event;
  put_wall_time(event, time);
  put_key(event, 2, varint);
  put_varint(event, static_cast<std::uint64_t>(step));
  put_bytes(event, 5, summary);
  return event;
}

EventFile::EventFile(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  // The process keeps two starts within a second apart.
  path_ = fmt::format("{}/events.out.tfevents.{}.{}.{}", folder,
                      static_cast<std::int64_t>(wall_time()), host_name(), getpid());
  file_.reset(std::fopen(path_.c_str(), "wb"));
  require(file_ != nullptr, "cannot write TensorBoard events to {}: {}", path_,
          std::strerror(errno));
  std::string first;
  put_wall_time(first, wall_time());
  put_bytes(first, 3, "brain.Event:2");  // file_version
  append(first);
}

void EventFile::write(std::int64_t step,
                      const std::vector<std::pair<std::string, double>>& values) {
  append(scalar_event(wall_time(), step, values));
}

void EventFile::append(const std::string& event) {
  const std::string record = tfrecord(event);
  bool written = std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size();
  written = std::fflush(file_.get()) == 0 && written;
  require(written, "cannot write TensorBoard events to {}: {}", path_, std::strerror(errno));
}

}  // namespace bdlm
