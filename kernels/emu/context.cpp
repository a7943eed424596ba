// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/context.h"

#include <cstdint>

namespace bdlm::emu {

#if defined(__x86_64__)

void make_context(Context& context, void* stack, std::size_t bytes, void (*entry)()) {
  const auto top = (reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~std::uintptr_t(63);
  auto* p = reinterpret_cast<void**>(top);
  *--p = nullptr;  // a return address: entry expects a stack pointer of 8 modulo 16
  *--p = reinterpret_cast<void*>(entry);  // where switch_context jumps to
  context.stack_pointer = p;
}

#else

void make_context(Context& context, void* stack, std::size_t bytes, void (*entry)()) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = stack;
  context.state.uc_stack.ss_size = bytes;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}

#endif

}  // namespace bdlm::emu
