// SPDX-License-Identifier: Apache-2.0
// Launching a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>

#include "kernels/emu/report.h"
#include "kernels/emu/runtime_api.h"
#include "kernels/emu/vector_types.h"

namespace bdlm::emu {

/// Counted over a grid.
struct Stats {
  std::uint64_t switches = 0, collectives = 0, barriers = 0, mma = 0, wgmma = 0, ldmatrix = 0,
                ldmatrix_conflicts = 0, cp_async = 0, tma_bytes = 0, blocks = 0, threads = 0;
  void add(const Stats& other);
};

struct Grid {
  const char* name;  // for messages; must live as long as the launch
  dim3 grid, block;
  std::size_t shared;
  void (*body)(void*);  // runs one thread of the kernel
  void* argument;
};

/// Runs a grid now and throws Error for whatever is wrong with it.
void run_grid(const Grid& grid);
/// Of the last grid that ran.
Stats last_stats();

/// What a call in a stream owns: its grid's argument.
using OwnedArgument = std::unique_ptr<void, void (*)(void*)>;
void run_on_null_stream(const Grid& grid);
cudaError_t enqueue(cudaStream_t stream, const Grid& grid, OwnedArgument argument);

/// Like <<<>>>: arguments are converted and copied now, each thread works on copies of its own. In
/// a stream the kernel runs later and what it does wrong becomes cudaErrorLaunchFailure at a
/// synchronising call; on the null stream it runs now, behind the work of all blocking streams, and
/// throws Error. A wrong configuration throws at once. `name` must be a literal.
template <class... P, class... A>
cudaError_t launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block,
                   std::size_t shared, cudaStream_t stream, A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "wrong number of kernel arguments");
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    static void run(void* self) {
      const auto* call = static_cast<const Call*>(self);
      std::apply(call->kernel, call->arguments);
    }
    static void destroy(void* self) { delete static_cast<Call*>(self); }
  };
  if (!stream) {
    Call call{kernel, std::tuple<P...>(static_cast<P>(arguments)...)};
    run_on_null_stream({name, grid, block, shared, &Call::run, &call});
    return cudaSuccess;
  }
  auto* call = new Call{kernel, std::tuple<P...>(static_cast<P>(arguments)...)};
  return enqueue(stream, {name, grid, block, shared, &Call::run, call},
                 OwnedArgument(call, &Call::destroy));
}

}  // namespace bdlm::emu
