// SPDX-License-Identifier: Apache-2.0
// Rows shared out over a group: gathering, summing and picking against the whole matrix.
#include <catch2/catch.hpp>

#include "parallel/scattered_rows.h"
#include "tests/mpi/place.h"

using namespace bdlm;

namespace {

constexpr std::int64_t cols = 5;

/// Element of the whole matrix, or of a rank's partial sum of it.
double value(std::int64_t row, std::int64_t col, int rank = 0) {
  return static_cast<double>(row * 31 + col * 7 % 11) + 0.25 * rank * static_cast<double>(row + col);
}

Buffer filled(Device& device, std::int64_t first, std::int64_t rows, int rank = 0) {
  std::vector<double> host;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < cols; ++k) host.push_back(value(first + i, k, rank));
  Buffer x = device.allocate(rows, cols, DType::f64, Memory::activations);
  device.copy_from_host(host.data(), x);
  return x;
}

std::vector<double> host_of(Device& device, Tensor x) {
  std::vector<double> host(static_cast<std::size_t>(x.size()));
  device.copy_to_host(x, host.data());
  return host;
}

}  // namespace

TEST_CASE("scattered rows are gathered, summed and picked", "[test_scattered_rows]") {
  auto group = test::device_world(std::make_shared<Traffic>());
  Device& device = *test::device();
  ScatteredRows rows(device, *group);
  for (std::int64_t n : {0, 1, 3, 17}) {
    const FlatRange here = rows.share(n);
    const Buffer mine = filled(device, here.begin, here.count);
    const Buffer all = device.allocate(n, cols, DType::f64, Memory::activations);
    rows.gather(mine, all);
    CHECK(host_of(device, all) == host_of(device, filled(device, 0, n)));

    // Every rank's partial sum differs; sums of small numbers are exact.
    const Buffer sum = filled(device, here.begin, here.count);
    rows.reduce(filled(device, 0, n, rows.rank()), sum);
    const std::vector<double> got = host_of(device, sum);
    for (std::int64_t i = 0; i < here.count; ++i)
      for (std::int64_t k = 0; k < cols; ++k) {
        double wanted = value(here.begin + i, k);
        for (int r = 0; r < rows.ranks(); ++r) wanted += value(here.begin + i, k, r);
        CHECK(got[static_cast<std::size_t>(i * cols + k)] == wanted);
      }

    std::vector<std::int32_t> picked;
    for (std::int32_t i = 0; i < n; ++i)
      if (i % 3 != 1 && i > n / 4) picked.push_back(i);
    const RowMove move = plan_move(picked, n, rows.rank(), rows.ranks());
    const auto held = device.upload(std::span<const std::int32_t>(move.held));
    const Buffer y = device.allocate(move.result, cols, DType::f64, Memory::activations);
    rows.pick(move, held, mine, y);
    const FlatRange out = rows.share(static_cast<std::int64_t>(picked.size()));
    const std::vector<double> chosen = host_of(device, y);
    for (std::int64_t i = 0; i < out.count; ++i)
      CHECK(chosen[static_cast<std::size_t>(i * cols)] ==
            value(picked[static_cast<std::size_t>(out.begin + i)], 0));

    // The way back adds each row where it came from and nothing elsewhere.
    const Buffer dx = device.allocate(here.count, cols, DType::f64, Memory::activations);
    device.zero(dx);
    rows.pick_backward(move, held, y, dx);
    const std::vector<double> back = host_of(device, dx);
    for (std::int64_t i = 0; i < here.count; ++i) {
      const bool was = std::ranges::find(picked, here.begin + i) != picked.end();
      CHECK(back[static_cast<std::size_t>(i * cols + 1)] ==
            (was ? value(here.begin + i, 1) : 0));
    }
  }
}
