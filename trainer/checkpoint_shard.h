// SPDX-License-Identifier: Apache-2.0
// One rank's file of a checkpoint: an HDF5 dataset for each kind of state and tensor that the rank
// has a part of, one-dimensional, the values of its boxes one after another.
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "trainer/boxes.h"

namespace bdlm {

/// A new file. What fails is an Error with the file, the system's text and a way out; the file that
/// is then left behind is no checkpoint, since nothing lists it.
class ShardWriter {
 public:
  explicit ShardWriter(const std::string& path);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// name: "master/model.norm.weight". shape: of the whole tensor, [cols] or [rows, cols].
  void write(const std::string& name, const std::vector<std::int64_t>& shape,
             const std::vector<Box>& boxes, DType type, const void* values);

  /// Everything on the disk.
  void close();

 private:
  std::string path_;
  hid_t file_;
};

class ShardReader {
 public:
  explicit ShardReader(const std::string& path);
  ~ShardReader();
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  /// Hands out the dataset's `count` values in order, in slabs of a few MiB: bytes as stored
  /// (little endian), and the first one's index. Error when there is no such dataset of that type
  /// and size.
  using Slab = std::function<void(std::span<const std::byte>, std::int64_t first)>;
  void read(const std::string& name, DType type, std::int64_t count, const Slab& slab);

 private:
  std::string path_;
  hid_t file_;
};

}  // namespace bdlm
