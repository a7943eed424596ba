// SPDX-License-Identifier: Apache-2.0
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // of the listener
#include "tests/kernels/devices.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace bdlm::test {
namespace {

std::vector<std::string> device_names() {
  const char* set = std::getenv("BDLM_TEST_DEVICES");
  std::stringstream text(set ? set : "cpu");
  std::vector<std::string> names;
  for (std::string name; std::getline(text, name, ',');) names.push_back(name);
  return names;
}

/// Kept to the end: libraries and contexts are not made again for every case.
const Backend& backend(const std::string& name) {
  static std::map<std::string, Backend> all;
  return all.try_emplace(name, name).first->second;
}

void on_backend(const std::string& name, const std::function<void(Device&)>& body) {
  const Backend& library = backend(name);
  const auto device = library.device(0);
  use_managed_memory(library, *device, name == "emu");
  struct Reset {
    ~Reset() { under_test = {}; }
  } reset;
  INFO(device->name());
  body(*device);
}

/// Without a GPU there is nothing to find out: CTest takes this status for a skipped test.
class SkipWithoutGpu : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override {
    for (const std::string& name : device_names()) {
      if (name != "cuda") continue;
      try {
        backend(name).devices();
      } catch (const Error& error) {
        std::printf("skipped: %s\n", error.what());
        std::exit(77);
      }
    }
  }
};
CATCH_REGISTER_LISTENER(SkipWithoutGpu)

}  // namespace

std::vector<Shape> device_shapes() {
  std::vector<Shape> all = shapes;
  if (under_test.emulated) all.back().rows = 61;
  return all;
}

void on_devices(const std::function<void(Device&)>& body) {
  for (const std::string& name : device_names()) {
    if (name != "cpu") {
      on_backend(name, body);
      continue;
    }
    for (const int threads : {1, 3}) body(*make_cpu_device(threads));
  }
}

}  // namespace bdlm::test
