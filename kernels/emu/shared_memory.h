// SPDX-License-Identifier: Apache-2.0
// Dynamic shared memory and checked access to memory. PTX sees shared memory as a window of 32-bit
// addresses; here a pointer into a block's dynamic shared memory has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace bdlm::emu {

char* dynamic_shared();
/// What cvta.to.shared gives; fails outside dynamic shared memory. `what` is for the message.
std::uint32_t shared_address(const void* p, const char* what);
/// The inverse, for `bytes` bytes.
char* at_shared_address(std::uint32_t address, std::uint32_t bytes, const char* what);

[[noreturn]] void fail_misaligned(const void* p, std::size_t alignment, const char* what);
inline void check_aligned(const void* p, std::size_t alignment, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(p) & (alignment - 1)) fail_misaligned(p, alignment, what);
}
template <class T>
const T& load(const T* p, const char* what) {
  check_aligned(p, alignof(T), what);
  return *p;
}
template <class T>
void store(T* p, const T& value, const char* what) {
  check_aligned(p, alignof(T), what);
  *p = value;
}

}  // namespace bdlm::emu

// Loads and stores with cache hints.
template <class T>
T __ldg(const T* p) {
  return bdlm::emu::load(p, "__ldg");
}
template <class T>
T __ldca(const T* p) {
  return bdlm::emu::load(p, "__ldca");
}
template <class T>
T __ldcg(const T* p) {
  return bdlm::emu::load(p, "__ldcg");
}
template <class T>
T __ldcs(const T* p) {
  return bdlm::emu::load(p, "__ldcs");
}
template <class T>
void __stcg(T* p, std::type_identity_t<T> value) {
  bdlm::emu::store(p, value, "__stcg");
}
template <class T>
void __stcs(T* p, std::type_identity_t<T> value) {
  bdlm::emu::store(p, value, "__stcs");
}
template <class T>
void __stwt(T* p, std::type_identity_t<T> value) {
  bdlm::emu::store(p, value, "__stwt");
}
