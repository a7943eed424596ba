// SPDX-License-Identifier: Apache-2.0
// The loader's order, bound, end and errors.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>

#include "data/loader.h"
#include "kernels/error.h"

using namespace bdlm;

TEST_CASE("loader: items in order, then the end for ever", "[loader]") {
  for (std::size_t ahead : {0, 1, 5}) {
    int made = 0;
    Loader<int> loader(
        [&]() -> std::optional<int> { return made < 50 ? std::optional(made++) : std::nullopt; },
        ahead);
    for (int i = 0; i < 50; ++i) REQUIRE(loader.next() == i);
    CHECK(!loader.next());
    CHECK(!loader.next());
  }
}

TEST_CASE("loader: no more is made than may wait", "[loader]") {
  std::atomic<int> made = 0;
  Loader<int> loader([&] { return std::optional(made++); }, 3);
  const auto settled = [&](int expected) {
    for (int i = 0; i < 200 && made < expected; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return made.load();
  };
  CHECK(settled(3) == 3);
  CHECK(loader.next() == 0);
  CHECK(settled(4) == 4);
}

TEST_CASE("loader: an error comes after the items before it, again and again", "[loader]") {
  int made = 0;
  Loader<std::unique_ptr<int>> loader(
      [&]() -> std::optional<std::unique_ptr<int>> {
        if (made == 3) fail("row {} is bad", made);
        return std::make_unique<int>(made++);
      },
      8);
  for (int i = 0; i < 3; ++i) CHECK(**loader.next() == i);
  CHECK_THROWS_WITH(loader.next(), "row 3 is bad");
  CHECK_THROWS_WITH(loader.next(), "row 3 is bad");
}

TEST_CASE("loader: may go before its items are taken", "[loader]") {
  for (int i = 0; i < 100; ++i) {
    Loader<int> loader([n = 0]() mutable { return std::optional(n++); }, 2);
    if (i % 2 == 0) CHECK(loader.next() == 0);
  }
}
