// SPDX-License-Identifier: Apache-2.0
// How the emulation reports a wrong use: the running grid is abandoned and Error leaves the call
// that ran it. The text names the kernel, block, thread and source position.
#pragma once

#include <cstring>
#include <stdexcept>

namespace bdlm::emu {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where a primitive was called: clang 14 with libstdc++ 12 has no std::source_location, the
/// builtins exist in both compilers. Two calls on one line are told apart by clang only.
struct Location {
  const char* file = "";
  unsigned line = 0, column = 0;

#if defined(__clang__)
  static constexpr Location current(const char* f = __builtin_FILE(), unsigned l = __builtin_LINE(),
                                    unsigned c = __builtin_COLUMN()) {
    return {f, l, c};
  }
#else
  static constexpr Location current(const char* f = __builtin_FILE(),
                                    unsigned l = __builtin_LINE()) {
    return {f, l, 0};
  }
#endif
};
inline bool same(const Location& a, const Location& b) {
  return a.line == b.line && a.column == b.column &&
         (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace bdlm::emu
