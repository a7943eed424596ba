// SPDX-License-Identifier: Apache-2.0
// The little of HDF5 that token files need: handles that close themselves, and attributes.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace bdlm::hdf5 {

/// Owns an identifier. A negative one is an error of the call that made it.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() { close(); }

  bool ok() const { return id_ >= 0; }
  hid_t id() const { return id_; }
  /// False if HDF5 could not write what it still held.
  bool close() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_;
  Close close_;
};

/// Keeps HDF5 from printing its own error stack while it lives.
class Quiet {
 public:
  Quiet();
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

// Attributes of a file or dataset. Reading gives nullopt for one that is absent or of another kind.
std::optional<std::string> read_string(hid_t object, const char* name);
std::optional<std::int64_t> read_integer(hid_t object, const char* name);
bool write_string(hid_t object, const char* name, const std::string& value);
bool write_integer(hid_t object, const char* name, std::int64_t value);

}  // namespace bdlm::hdf5
