// SPDX-License-Identifier: Apache-2.0
// The configurations under which kernels are tested.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "kernels/emu/config.h"
#include "kernels/emu/report.h"
#include "kernels/emu/runtime_api.h"

namespace bdlm::emu {

/// Restores the configuration and forgets failures at the end of a test.
class Restore {
 public:
  Restore() { reset(); }
  ~Restore() {
    config() = before_;
    reset();
  }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  Config before_ = config();
};

/// Calls f in forward/lazy, reverse/eager and random/random order.
template <class F>
void in_all_modes(F&& f) {
  const Restore restore;
  const Config base = config();
  for (const int mode : {0, 1, 2}) {
    config() = base;
    config().order = Order(mode);
    config().async = Async(mode);
    config().streams = Streams(mode);
    config().seed = 7;
    INFO("mode " << mode);
    f();
    reset();
  }
}

/// What f reports; empty when nothing.
template <class F>
std::string report_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

}  // namespace bdlm::emu
