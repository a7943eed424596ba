// SPDX-License-Identifier: Apache-2.0
// Errors that reach the user: one sentence that names what is wrong and a way out.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace bdlm {

/// What a command prints before it exits with a non-zero status. The text is for the user: it names
/// the file, key, tensor or argument. Anything else that is thrown is a defect of the program.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format(text, std::forward<Args>(args)...));
}

/// Always on, also in release builds. The condition must have no side effect.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) fail(text, std::forward<Args>(args)...);
}

}  // namespace bdlm
