// SPDX-License-Identifier: Apache-2.0
// Backends are shared libraries beside the program, opened when they are asked for: bdlm itself
// links no CUDA library and starts where there is none. "cuda" is libbdlm_cuda.so; "emu", for tests,
// is the same source with its kernels run by an emulation.
#pragma once

#include <memory>
#include <string>

#include "kernels/device.h"

namespace bdlm {

class Backend {
 public:
  /// Looks beside the program, then where BDLM_BACKENDS says. Throws Error that says what is
  /// missing: the library itself, or one that it needs.
  explicit Backend(const std::string& name);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const std::string& name() const { return name_; }
  /// Devices that can be used. Throws Error, with the driver's own text, when there is none.
  int devices() const;
  /// What it was built with and what it finds, a line each; for bdlm doctor.
  std::string versions() const;
  /// The backend must outlive the device.
  std::unique_ptr<Device> device(int index) const;

  /// An entry point of the library by its name; throws Error when there is none.
  void* symbol(const char* name) const;

 private:
  std::string name_, path_;
  void* library_ = nullptr;
};

/// What a library exports, see kernels/cuda/plugin.cpp.
namespace backend_entry {
using Devices = int();
using Versions = std::string();
using MakeDevice = Device*(int index);
}  // namespace backend_entry

}  // namespace bdlm
