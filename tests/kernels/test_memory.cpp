// SPDX-License-Identifier: Apache-2.0
// The CPU memory pool: reuse, counts by kind, bounded growth; buffers.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/host_memory.h"
#include "kernels/device.h"

using namespace bdlm;

TEST_CASE("pool: freed blocks are reused and a steady step asks the system for nothing", "[cpu]") {
  HostMemory host;
  MemoryPool pool(host);
  const auto step = [&] {
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (const std::size_t bytes : {1u, 63u, 64u, 65u, 4097u, 100000u, 3000000u, 100000u}) {
      void* data = pool.acquire(bytes, Memory::activations);
      REQUIRE(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
      std::memset(data, 0xff, bytes);
      for (const auto& [other, size] : blocks) REQUIRE(other != data);
      blocks.emplace_back(data, bytes);
    }
    for (const auto& [data, bytes] : blocks) pool.release(data, bytes, Memory::activations);
  };
  step();
  const std::size_t calls = pool.system_calls();
  CHECK(calls == 8);
  for (int i = 0; i < 3; ++i) step();
  CHECK(pool.system_calls() == calls);
}

TEST_CASE("pool: bytes and peaks are those asked for, by kind", "[cpu]") {
  HostMemory host;
  MemoryPool pool(host);
  void* a = pool.acquire(1000, Memory::parameters);
  void* b = pool.acquire(50, Memory::exchange);
  pool.release(a, 1000, Memory::parameters);
  void* c = pool.acquire(300, Memory::exchange);
  MemoryUse use = pool.use();
  const auto parameters = std::size_t(Memory::parameters), exchange = std::size_t(Memory::exchange);
  CHECK(use.bytes[parameters] == 0);
  CHECK(use.bytes[exchange] == 350);
  CHECK(use.peak_by_kind[parameters] == 1000);
  CHECK(use.peak_by_kind[exchange] == 350);
  CHECK(use.peak == 1050);
  pool.reset_peak();
  CHECK(pool.use().peak == 350);
  CHECK(pool.use().peak_by_kind[parameters] == 0);
  pool.release(b, 50, Memory::exchange);
  pool.release(c, 300, Memory::exchange);
  CHECK(pool.use().bytes[exchange] == 0);
}

TEST_CASE("pool: blocks of sizes that do not come back are given up", "[cpu]") {
  HostMemory host;
  MemoryPool pool(host);
  for (std::size_t bytes = 1 << 20; bytes < (8u << 20); bytes += 123457) {
    pool.release(pool.acquire(bytes, Memory::workspace), bytes, Memory::workspace);
    CHECK(pool.reserved() <= 14u << 20);  // once and a half of the largest, and its rounding
  }
}

TEST_CASE("pool: no bytes are no memory", "[cpu]") {
  HostMemory host;
  MemoryPool pool(host);
  CHECK(pool.acquire(0, Memory::workspace) == nullptr);
  pool.release(nullptr, 0, Memory::workspace);
}

TEST_CASE("pool: memory that is not to be had is an error for the user", "[cpu]") {
  HostMemory host;
  MemoryPool pool(host);
  CHECK_THROWS_AS(pool.acquire(std::size_t{1} << 63, Memory::gradients), Error);
  CHECK(pool.use().peak == 0);
}

TEST_CASE("buffer: owns, moves, resets", "[cpu]") {
  const auto device = make_cpu_device(1);
  const auto bytes = [&] { return device->memory().bytes[std::size_t(Memory::optimizer)]; };
  Buffer a = device->allocate(3, 5, DType::f32, Memory::optimizer);
  CHECK(bytes() == 60);
  CHECK(a.tensor().stride == 5);
  Buffer b = std::move(a);
  CHECK(bytes() == 60);
  b = device->allocate(1, 1, DType::bf16, Memory::optimizer);
  CHECK(bytes() == 2);
  b.reset();
  CHECK(bytes() == 0);
  const Buffer empty = device->allocate(0, 7, DType::f64, Memory::optimizer);
  CHECK(!empty);
  CHECK(empty.tensor().cols == 7);
  CHECK_THROWS_AS(device->allocate(-1, 7, DType::f64, Memory::optimizer), Error);
}

TEST_CASE("lists on the CPU are views of the host's", "[cpu]") {
  const auto device = make_cpu_device(1);
  const std::vector<std::int32_t> rows{3, 1, 2};
  const auto list = device->upload(std::span(rows));
  CHECK(list.data == rows.data());
  CHECK(list.count == 3);
}
