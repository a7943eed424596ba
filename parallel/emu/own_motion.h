// SPDX-License-Identifier: Apache-2.0
// A thread that runs what the streams hold, as a device does by itself, while one of these lives.
// Without it a host that waits for others outside of the runtime would keep those waiting that need
// what it has enqueued.
#pragma once

namespace bdlm::emu {

class OwnMotion {
 public:
  OwnMotion();
  ~OwnMotion();
  OwnMotion(const OwnMotion&) = delete;
  OwnMotion& operator=(const OwnMotion&) = delete;
};

}  // namespace bdlm::emu
