// SPDX-License-Identifier: Apache-2.0
// Warp shuffles, votes and integer reductions, by CUDA's names.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/emu/report.h"

namespace bdlm::emu {

enum class Reduce : std::uint8_t {
  add,
  min_unsigned,
  max_unsigned,
  min_signed,
  max_signed,
  bit_and,
  bit_or,
  bit_xor
};

enum class ShuffleKind : std::uint8_t { index, exclusive_or, down, up };

/// The value of the lane that `kind` and `argument` say within segments of `width` lanes, the own
/// one where that is outside of the segment.
std::uint64_t shuffle(unsigned mask, std::uint64_t value, ShuffleKind kind, int argument, int width,
                      Location at);
unsigned ballot(unsigned mask, bool predicate, Location at);
unsigned match_any(unsigned mask, std::uint64_t value, Location at);
unsigned reduce(unsigned mask, unsigned value, Reduce operation, Location at);

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T shuffle_value(unsigned mask, T value, ShuffleKind kind, int argument, int width, Location at) {
  return from_bits<T>(shuffle(mask, to_bits(value), kind, argument, width, at));
}

}  // namespace bdlm::emu

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::shuffle_value(mask, value, bdlm::emu::ShuffleKind::index, source, width, at);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::shuffle_value(mask, value, bdlm::emu::ShuffleKind::exclusive_or, bits, width,
                                  at);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::shuffle_value(mask, value, bdlm::emu::ShuffleKind::down, int(distance), width,
                                  at);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::shuffle_value(mask, value, bdlm::emu::ShuffleKind::up, int(distance), width,
                                  at);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::ballot(mask, predicate != 0, at);
}
inline int __any_sync(unsigned mask, int predicate,
                      bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::ballot(mask, predicate != 0, at) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::ballot(mask, predicate != 0, at) == mask;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value,
                          bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::match_any(mask, bdlm::emu::to_bits(value), at);
}

inline unsigned __reduce_add_sync(unsigned mask, unsigned value,
                                  bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::reduce(mask, value, bdlm::emu::Reduce::add, at);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value,
                                  bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::reduce(mask, value, bdlm::emu::Reduce::min_unsigned, at);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value,
                                  bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::reduce(mask, value, bdlm::emu::Reduce::max_unsigned, at);
}
inline int __reduce_add_sync(unsigned mask, int value,
                             bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return int(bdlm::emu::reduce(mask, unsigned(value), bdlm::emu::Reduce::add, at));
}
inline int __reduce_min_sync(unsigned mask, int value,
                             bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return int(bdlm::emu::reduce(mask, unsigned(value), bdlm::emu::Reduce::min_signed, at));
}
inline int __reduce_max_sync(unsigned mask, int value,
                             bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return int(bdlm::emu::reduce(mask, unsigned(value), bdlm::emu::Reduce::max_signed, at));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value,
                                  bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::reduce(mask, value, bdlm::emu::Reduce::bit_and, at);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value,
                                 bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::reduce(mask, value, bdlm::emu::Reduce::bit_or, at);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value,
                                  bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::reduce(mask, value, bdlm::emu::Reduce::bit_xor, at);
}
