// SPDX-License-Identifier: Apache-2.0
// Switching between fibers of one host thread.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace bdlm::emu {

struct Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t state;
#endif
};

/// A context that starts in `entry`, which must not return, on the given stack.
void make_context(Context& context, void* stack, std::size_t bytes, void (*entry)());

// Saves and restores nothing itself: every register is declared as changed, so the compiler keeps
// what it needs on the stack. Inline and without a call, because processors predict returns from a
// stack of calls: threads that do the same then return to the same addresses, as predicted.
#if defined(__x86_64__)
#ifdef __AVX512F__
#define BDLM_EMU_AVX512_REGISTERS                                                               \
  , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",   \
      "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5", \
      "k6", "k7"
#else
#define BDLM_EMU_AVX512_REGISTERS
#endif
[[gnu::always_inline]] inline void switch_context(Context& from, Context& to) {
  void** save = &from.stack_pointer;
  void* load = to.stack_pointer;
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n\t"  // what the calling convention lets a function use below it
      "pushq %%rbp\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%0)\n\t"
      "movq %1, %%rsp\n\t"
      "popq %%rax\n\t"
      "jmpq *%%rax\n"
      "1:\n\t"
      "popq %%rbp\n\t"
      "leaq 128(%%rsp), %%rsp"
      : "+D"(save), "+S"(load)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory",
        "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15" BDLM_EMU_AVX512_REGISTERS);
}
#undef BDLM_EMU_AVX512_REGISTERS
#else
inline void switch_context(Context& from, Context& to) { swapcontext(&from.state, &to.state); }
#endif

}  // namespace bdlm::emu
