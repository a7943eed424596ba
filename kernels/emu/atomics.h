// SPDX-License-Identifier: Apache-2.0
// Atomic functions. Real atomics: several workers run blocks, and ThreadSanitizer looks on.
#pragma once

#include <atomic>
#include <type_traits>

namespace bdlm::emu {

/// Replaces the old value by f(old) and returns the old one.
template <class T, class F>
T atomic_update(T* p, F f) {
  std::atomic_ref<T> word(*p);
  T old = word.load(std::memory_order_relaxed);
  while (!word.compare_exchange_weak(old, f(old), std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace bdlm::emu

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return bdlm::emu::atomic_update(p, [=](T old) { return T(old + v); });
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> v) {
  return bdlm::emu::atomic_update(p, [=](T old) { return T(old - v); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return bdlm::emu::atomic_update(p, [=](T old) { return old > v ? old : v; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return bdlm::emu::atomic_update(p, [=](T old) { return old < v ? old : v; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  return bdlm::emu::atomic_update(p, [=](T old) { return T(old | v); });
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
  return bdlm::emu::atomic_update(p, [=](T old) { return T(old & v); });
}
template <class T>
T atomicXor(T* p, std::type_identity_t<T> v) {
  return bdlm::emu::atomic_update(p, [=](T old) { return T(old ^ v); });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return std::atomic_ref<T>(*p).exchange(v, std::memory_order_relaxed);
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> compare, std::type_identity_t<T> v) {
  std::atomic_ref<T>(*p).compare_exchange_strong(compare, v, std::memory_order_relaxed);
  return compare;
}
inline unsigned atomicInc(unsigned* p, unsigned most) {
  return bdlm::emu::atomic_update(p, [=](unsigned old) { return old >= most ? 0u : old + 1; });
}
