// SPDX-License-Identifier: Apache-2.0
// What AddressSanitizer and ThreadSanitizer have to be told about fibers. Each CUDA thread is a
// fiber of its own for them, so that a missing barrier is reported as a data race of two threads.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define BDLM_EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BDLM_EMU_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define BDLM_EMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BDLM_EMU_TSAN 1
#endif
#endif
#ifndef BDLM_EMU_ASAN
#define BDLM_EMU_ASAN 0
#endif
#ifndef BDLM_EMU_TSAN
#define BDLM_EMU_TSAN 0
#endif

#if BDLM_EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if BDLM_EMU_TSAN
#include <sanitizer/tsan_interface.h>

#include <cstddef>
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
void AnnotateNewMemory(const char*, int, const volatile void*, std::size_t);
}
#endif

namespace bdlm::emu {

/// The machine's own reads and writes are invisible to ThreadSanitizer; only what kernel code reads
/// and writes is checked, ordered by the annotations at barriers.
class IgnoreRaces {
 public:
#if BDLM_EMU_TSAN
  IgnoreRaces() {
    AnnotateIgnoreReadsBegin("", 0);
    AnnotateIgnoreWritesBegin("", 0);
  }
  ~IgnoreRaces() {
    AnnotateIgnoreReadsEnd("", 0);
    AnnotateIgnoreWritesEnd("", 0);
  }
#else
  IgnoreRaces() {}
  ~IgnoreRaces() {}
#endif
  IgnoreRaces(const IgnoreRaces&) = delete;
  IgnoreRaces& operator=(const IgnoreRaces&) = delete;
};

/// What was done before release(p) happens before what is done after the next acquire(p).
inline void release([[maybe_unused]] void* p) {
#if BDLM_EMU_TSAN
  __tsan_release(p);
#endif
}
inline void acquire([[maybe_unused]] void* p) {
#if BDLM_EMU_TSAN
  __tsan_acquire(p);
#endif
}

/// Makes a range an error to touch, and legal again. Nothing without AddressSanitizer.
inline void forbid([[maybe_unused]] const void* p, [[maybe_unused]] unsigned long bytes) {
#if BDLM_EMU_ASAN
  ASAN_POISON_MEMORY_REGION(p, bytes);
#endif
}
inline void allow([[maybe_unused]] const void* p, [[maybe_unused]] unsigned long bytes) {
#if BDLM_EMU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(p, bytes);
#endif
}

}  // namespace bdlm::emu
