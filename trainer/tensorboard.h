// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files, scalars only: TFRecord frames of Event messages. The few protobuf fields
// that they need are written by hand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/metrics.h"

namespace bdlm {

/// CRC-32C (Castagnoli; RFC 3720).
std::uint32_t crc32c(std::string_view bytes);

/// length, masked checksum of it, bytes, masked checksum of them.
std::string tfrecord(std::string_view bytes);

/// tensorflow.Event with a Summary of these values.
std::string scalar_event(double wall_time, std::int64_t step,
                         const std::vector<std::pair<std::string, double>>& values);

/// A new file in `folder` (made if need be), as TensorBoard wants one for every start of a run.
class EventFile {
 public:
  explicit EventFile(const std::string& folder);
  /// Flushed. Throws Error with the file and the cause.
  void write(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);
  const std::string& path() const { return path_; }

 private:
  void append(const std::string& event);
  std::string path_;
  File file_;
};

}  // namespace bdlm
