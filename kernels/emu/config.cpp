// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/config.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <string>

#include "kernels/emu/report.h"

namespace bdlm::emu {
namespace {

template <class T>
void read_number(const char* name, T& value) {
  const char* text = std::getenv(name);
  if (!text || !*text) return;
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(text, &end, 10);
  if (*end || errno || *text == '-' || static_cast<unsigned long long>(T(number)) != number)
    throw Error(std::string("emulation: ") + name + "=" + text + " is not a number in range");
  value = T(number);
}

/// The names of enumerators 0, 1 and 2.
template <class E>
void read_choice(const char* name, const char* const (&names)[3], E& value) {
  const char* text = std::getenv(name);
  if (!text || !*text) return;
  const auto* found = std::find(std::begin(names), std::end(names), std::string(text));
  if (found == std::end(names))
    throw Error(std::string("emulation: ") + name + "=" + text + " is none of " + names[0] + ", " +
                names[1] + ", " + names[2]);
  value = E(found - std::begin(names));
}

}  // namespace

std::size_t Config::most_shared() const {
  if (compute >= 90) return 227 * 1024;
  return (compute == 80 ? 163 : 99) * 1024;
}

Config config_from_environment() {
  Config c;
  read_choice("BDLM_EMU_ORDER", {"forward", "reverse", "random"}, c.order);
  read_choice("BDLM_EMU_ASYNC", {"lazy", "eager", "random"}, c.async);
  read_choice("BDLM_EMU_STREAMS", {"lazy", "eager", "random"}, c.streams);
  read_number("BDLM_EMU_SEED", c.seed);
  read_number("BDLM_EMU_WORKERS", c.workers);
  read_number("BDLM_EMU_DEVICES", c.devices);
  read_number("BDLM_EMU_COMPUTE", c.compute);
  read_number("BDLM_EMU_MEMORY", c.memory);
  return c;
}

Config& config() {
  static Config c = config_from_environment();
  return c;
}

}  // namespace bdlm::emu
