// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/report.h"

#include <cstdarg>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "kernels/emu/worker.h"

namespace bdlm::emu {
namespace {

std::string where(const char* kernel, const uint3& block) {
  return std::string("emulation: kernel ") + kernel + ": block (" + std::to_string(block.x) + "," +
         std::to_string(block.y) + "," + std::to_string(block.z) + ")";
}

/// "0-31,40": ascending numbers.
std::string ranges(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (i) text += ",";
    text += std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string describe(const Fiber& f) {
  if (f.state == State::exited) return "exited";
  std::string text = std::string("wait in ") + f.wait_what;
  if (f.wait_mask) {
    char mask[24];
    std::snprintf(mask, sizeof mask, " (mask %08x)", f.wait_mask);
    text += mask;
  }
  return text + " at " + f.wait_at.file + ":" + std::to_string(f.wait_at.line);
}

}  // namespace

void fail(const char* format, ...) {
  const IgnoreRaces ignore;
  char text[1024];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (!worker || !worker->current) throw Error(std::string("emulation: ") + text);
  char thread[64];
  std::snprintf(thread, sizeof thread, " thread (%u,%u,%u): ", threadIdx.x, threadIdx.y,
                threadIdx.z);
  worker->set_failure(where(worker->grid.name, blockIdx) + thread + text);
  worker->abandon();
}

std::string Worker::describe_deadlock() const {
  std::vector<std::pair<std::string, std::vector<std::uint32_t>>> groups_of_threads;
  for (std::uint32_t i = 0; i < threads; ++i) {
    std::string text = describe(fibers[i]);
    auto group = groups_of_threads.begin();
    while (group != groups_of_threads.end() && group->first != text) ++group;
    if (group == groups_of_threads.end())
      group = groups_of_threads.insert(group, {std::move(text), {}});
    group->second.push_back(i);
  }
  std::string text = where(grid.name, blockIdx) + ": deadlock: " + std::to_string(alive) + " of " +
                     std::to_string(threads) + " threads have not exited and none can run";
  for (const auto& [what, numbers] : groups_of_threads)
    text += "\n  threads " + ranges(numbers) + ": " + what;
  return text;
}

}  // namespace bdlm::emu
