// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/warp.h"

#include <algorithm>
#include <bit>

#include "kernels/emu/collective.h"

namespace bdlm::emu {
namespace {

/// A lane's argument and result.
struct Shuffle {
  std::uint64_t value, result;
  int source;
};
struct Vote {
  std::uint64_t value;
  std::uint32_t result;
};
struct Reduction {
  std::uint32_t value, result;
  Reduce operation;
};

template <class Argument>
Argument& of(void* const* arguments, int lane) {
  return *static_cast<Argument*>(arguments[lane]);
}
template <class F>
void for_lanes(std::uint32_t mask, F&& f) {
  for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
}

int source_lane(ShuffleKind kind, int argument, int width) {
  const int own = int(worker->current->lane()), first = own & ~(width - 1),
            last = first + width - 1;
  int source = own;
  switch (kind) {
    case ShuffleKind::index:
      return first | (argument & (width - 1));
    case ShuffleKind::exclusive_or:
      source = own ^ argument;
      return source > last ? own : source;  // into earlier segments is allowed
    case ShuffleKind::down:
      source = own + argument;
      return source > last ? own : source;
    case ShuffleKind::up:
      source = own - argument;
      return source < first ? own : source;
  }
  return own;
}

void execute_shuffle(void* const* arguments, std::uint32_t mask) {
  for_lanes(mask, [&](int lane) {
    Shuffle& a = of<Shuffle>(arguments, lane);
    // Undefined in CUDA.
    if (a.source > 31 || !(mask >> a.source & 1))
      fail("shuffle: lane %d reads lane %d, which is not in mask %08x", lane, a.source, mask);
    a.result = of<Shuffle>(arguments, a.source).value;
  });
}

void execute_ballot(void* const* arguments, std::uint32_t mask) {
  std::uint32_t set = 0;
  for_lanes(mask, [&](int lane) {
    if (of<Vote>(arguments, lane).value) set |= 1u << lane;
  });
  for_lanes(mask, [&](int lane) { of<Vote>(arguments, lane).result = set; });
}

void execute_match(void* const* arguments, std::uint32_t mask) {
  for_lanes(mask, [&](int lane) {
    Vote& a = of<Vote>(arguments, lane);
    a.result = 0;
    for_lanes(mask, [&](int other) {
      if (of<Vote>(arguments, other).value == a.value) a.result |= 1u << other;
    });
  });
}

std::uint32_t combine(Reduce operation, std::uint32_t a, std::uint32_t b) {
  switch (operation) {
    case Reduce::add:
      return a + b;
    case Reduce::min_unsigned:
      return std::min(a, b);
    case Reduce::max_unsigned:
      return std::max(a, b);
    case Reduce::min_signed:
      return std::uint32_t(std::min(int(a), int(b)));
    case Reduce::max_signed:
      return std::uint32_t(std::max(int(a), int(b)));
    case Reduce::bit_and:
      return a & b;
    case Reduce::bit_or:
      return a | b;
    case Reduce::bit_xor:
      return a ^ b;
  }
  return 0;
}

void execute_reduce(void* const* arguments, std::uint32_t mask) {
  const Reduction& first = of<Reduction>(arguments, std::countr_zero(mask));
  std::uint32_t result = first.value;
  for_lanes(mask & (mask - 1), [&](int lane) {
    result = combine(first.operation, result, of<Reduction>(arguments, lane).value);
  });
  for_lanes(mask, [&](int lane) { of<Reduction>(arguments, lane).result = result; });
}

}  // namespace

std::uint64_t shuffle(unsigned mask, std::uint64_t value, ShuffleKind kind, int argument, int width,
                      Location at) {
  Shuffle a{value, 0, source_lane(kind, argument, width)};
  collective(mask, Collective::shuffle, &a, execute_shuffle, at);
  return a.result;
}

unsigned ballot(unsigned mask, bool predicate, Location at) {
  Vote a{predicate, 0};
  collective(mask, Collective::vote, &a, execute_ballot, at);
  return a.result;
}

unsigned match_any(unsigned mask, std::uint64_t value, Location at) {
  Vote a{value, 0};
  collective(mask, Collective::match, &a, execute_match, at);
  return a.result;
}

unsigned reduce(unsigned mask, unsigned value, Reduce operation, Location at) {
  Reduction a{value, 0, operation};
  collective(mask, Collective::reduce, &a, execute_reduce, at);
  return a.result;
}

}  // namespace bdlm::emu
