// SPDX-License-Identifier: Apache-2.0
// Asynchronous work in flight inside a block: cp.async of a thread, bulk copies (TMA) of a block,
// wgmma of a warp group. All are kept in vectors that are reused, so that a steady loop does not
// allocate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bdlm::emu {

struct ElementCopy {  // cp.async of 4, 8 or 16 bytes; what lies beyond source_bytes becomes zero
  void* to;
  const void* from;
  std::uint32_t bytes, source_bytes;
};

/// First in, first out in committed groups.
template <class Work>
class WorkGroups {
 public:
  void add(const Work& work) { work_.push_back(work); }
  void commit() { group_end_.push_back(work_.size()); }
  bool empty() const { return work_.empty(); }
  std::size_t pending() const { return group_end_.size() - finished_groups_; }
  /// Runs the oldest committed group.
  template <class Run>
  void finish_one(Run&& run) {
    const std::size_t end = group_end_[finished_groups_++];
    while (finished_work_ < end) run(work_[finished_work_++]);
    if (finished_work_ == work_.size() && pending() == 0) clear();
  }
  void clear() {
    work_.clear();
    group_end_.clear();
    finished_work_ = finished_groups_ = 0;
  }

 private:
  std::vector<Work> work_;
  std::vector<std::size_t> group_end_;
  std::size_t finished_work_ = 0, finished_groups_ = 0;
};

enum class Swizzle : int { none = 0, b128 = 1, b64 = 2, b32 = 3 };  // as in wgmma descriptors

/// The 16-byte chunk of a shared address is exchanged within its 128, 64 or 32 bytes.
inline std::uint32_t swizzled(Swizzle s, std::uint32_t address) {
  constexpr std::array<std::uint32_t, 4> chunks = {0, 7, 3, 1};
  return address ^ ((address >> 7 & chunks[std::size_t(s)]) << 4);
}

struct alignas(64) TensorMap {  // stands in for CUtensorMap
  const void* base = nullptr;
  int rank = 0, elem = 2;  // bytes of an element
  Swizzle swz = Swizzle::none;
  std::uint64_t dim[5] = {}, stride[5] = {};  // stride in bytes, that of dimension 0 unused
  std::uint32_t box[5] = {};
};

struct BulkCopy {
  TensorMap map;
  std::uint32_t to;  // shared address
  std::uint32_t bytes;
  std::uint64_t* barrier;
  std::array<int, 5> corner;
};

struct WgmmaOperands {  // what one thread of the warp group passes
  std::uint32_t a[4];
  std::uint64_t a_descriptor, b_descriptor;
  float* d;
  bool accumulate;
};
struct Wgmma {
  std::array<WgmmaOperands, 128> thread;
  int n;
  bool a_shared, a_mn_major, b_mn_major;
};

}  // namespace bdlm::emu
