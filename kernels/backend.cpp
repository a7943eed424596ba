// SPDX-License-Identifier: Apache-2.0
#include "kernels/backend.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace bdlm {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders() {
  std::vector<fs::path> all;
  if (const char* set = std::getenv("BDLM_BACKENDS")) all.emplace_back(set);
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) {
    all.push_back(program.parent_path());
    all.push_back(program.parent_path().parent_path());  // tests lie a folder below
    all.push_back(program.parent_path().parent_path() / "lib");
  }
  return all;
}

}  // namespace

Backend::Backend(const std::string& name) : name_(name) {
  const std::string file = "libbdlm_" + name + ".so";
  std::string looked;
  for (const fs::path& folder : folders()) {
    std::error_code ignored;
    if (fs::exists(folder / file, ignored)) {
      path_ = folder / file;
      break;
    }
    looked += (looked.empty() ? "" : ", ") + folder.string();
  }
  require(!path_.empty(),
          "this build of bdlm has no {} backend ({} is not in {}): build it where nvcc is found, or "
          "set run.device: cpu",
          name, file, looked);
  library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library_) fail("the {} backend cannot be opened: {}", name, dlerror());
}

// Kept open: objects of the library may still be alive in other threads, and the process ends soon.
Backend::~Backend() = default;

void* Backend::symbol(const char* name) const {
  void* found = dlsym(library_, name);
  require(found != nullptr, "{} has no {}: it is of another version of bdlm; build both together",
          path_, name);
  return found;
}

int Backend::devices() const {
  return reinterpret_cast<backend_entry::Devices*>(symbol("bdlm_devices"))();
}

std::string Backend::versions() const {
  return reinterpret_cast<backend_entry::Versions*>(symbol("bdlm_versions"))();
}

std::unique_ptr<Device> Backend::device(int index) const {
  return std::unique_ptr<Device>(
      reinterpret_cast<backend_entry::MakeDevice*>(symbol("bdlm_make_device"))(index));
}

}  // namespace bdlm
