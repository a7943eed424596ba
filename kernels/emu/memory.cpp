// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/emu/config.h"
#include "kernels/emu/report.h"
#include "kernels/emu/sanitizers.h"

namespace bdlm::emu {
namespace {

constexpr std::size_t alignment = 256;                   // what cudaMalloc promises
constexpr std::size_t margin = BDLM_EMU_ASAN ? 0 : 256;  // AddressSanitizer has its own
constexpr unsigned char fill = 0xff, margin_fill = 0xfe;

bool all(const void* data, std::size_t bytes, unsigned char value) {
  const auto* p = static_cast<const unsigned char*>(data);
  return bytes == 0 || (p[0] == value && std::memcmp(p, p + 1, bytes - 1) == 0);
}

}  // namespace

Memory& memory() {
  static Memory& m = *new Memory;
  return m;
}

void* Memory::allocate(Place place, int device, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const bool counts = place == Place::device;
  const std::size_t limit = config().memory, used = used_[device];
  if (counts && (used > limit || bytes > limit - used)) return nullptr;
  void* data = nullptr;
  if (bytes > PTRDIFF_MAX || posix_memalign(&data, alignment, bytes + margin)) return nullptr;
  std::memset(data, fill, bytes);
  if (margin) std::memset(static_cast<char*>(data) + bytes, margin_fill, margin);
  blocks_[reinterpret_cast<std::uintptr_t>(data)] = Block{place, device, bytes};
  if (counts) used_[device] += bytes;
  return data;
}

Memory::Blocks::iterator Memory::find(const void* data) {
  auto after = blocks_.upper_bound(reinterpret_cast<std::uintptr_t>(data));
  if (after == blocks_.begin()) return blocks_.end();
  --after;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(data) - after->first;
  return offset < std::max<std::size_t>(after->second.bytes, 1) ? after : blocks_.end();
}

bool Memory::owns(Place place, const void* data) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(reinterpret_cast<std::uintptr_t>(data));
  return block != blocks_.end() && block->second.place == place && !block->second.given_back;
}

void Memory::give_back(const void* data) {
  const std::lock_guard lock(mutex_);
  Block& block = blocks_.at(reinterpret_cast<std::uintptr_t>(data));
  block.given_back = true;
  if (block.place == Place::device) used_[block.device] -= block.bytes;
}

void Memory::free(void* data) {
  const std::lock_guard lock(mutex_);
  Block& block = blocks_.at(reinterpret_cast<std::uintptr_t>(data));
  block.freed = true;
  std::memset(data, fill, block.bytes);
  forbid(data, block.bytes);
}

Place Memory::place_of(const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = find(data);
  if (found == blocks_.end()) return Place::pageable;
  const Block& block = found->second;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(data) - found->first;
  return block.freed || bytes > block.bytes - offset ? Place::invalid : block.place;
}

std::size_t Memory::used(int device) {
  const std::lock_guard lock(mutex_);
  return used_[device];
}

void Memory::release(Blocks::iterator block) {
  allow(reinterpret_cast<void*>(block->first), block->second.bytes);
  std::free(reinterpret_cast<void*>(block->first));
  blocks_.erase(block);
}

void Memory::collect() {
  const std::lock_guard lock(mutex_);
  std::string damage;
  for (auto next = blocks_.begin(); next != blocks_.end();) {
    const auto block = next++;
    auto* data = reinterpret_cast<char*>(block->first);
    const std::size_t bytes = block->second.bytes;
    const std::string what = "emulation: a block of " + std::to_string(bytes) + " bytes";
    if (margin && !all(data + bytes, margin, margin_fill)) {
      damage = what + " was written past its end";
      std::memset(data + bytes, margin_fill, margin);
    }
    if (!block->second.freed) continue;
    if (!BDLM_EMU_ASAN && !all(data, bytes, fill))
      damage = what + " was written after it was freed";
    release(block);
  }
  if (!damage.empty()) throw Error(damage);
}

void Memory::reset() {
  const std::lock_guard lock(mutex_);
  while (!blocks_.empty()) release(blocks_.begin());
  used_.clear();
}

void require_live(const void* data, std::size_t bytes, const char* what) {
  if (memory().place_of(data, bytes) == Place::invalid)
    throw Error(std::string("emulation: ") + what + " of " + std::to_string(bytes) +
                " bytes uses memory that was freed before it ran");
}

}  // namespace bdlm::emu
