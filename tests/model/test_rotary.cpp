// SPDX-License-Identifier: Apache-2.0
// Frequencies against numbers that the float64 oracle's inverse_frequencies printed; tables against
// the formula.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/error.h"
#include "model/rotary.h"

using namespace bdlm;

namespace {

ModelConfig with(std::int64_t head_dim, double theta, RopeScaling scaling = {}) {
  ModelConfig config;
  config.head_dim = head_dim;
  config.rope_theta = theta;
  config.rope_scaling = scaling;
  return config;
}

void check(const ModelConfig& config, const std::vector<double>& expected) {
  const auto found = inverse_frequencies(config);
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(found[i] == Approx(expected[i]).epsilon(1e-14));
  }
}

RopeScaling yarn(double original, double fast, double slow, double factor = 4) {
  return {.type = RopeType::yarn,
          .factor = factor,
          .original_max_position_embeddings = original,
          .beta_fast = fast,
          .beta_slow = slow};
}

}  // namespace

TEST_CASE("plain and partial frequencies", "[rotary]") {
  check(with(10, 1e4), {1.0, 0.15848931924611132, 0.025118864315095794, 0.003981071705534973,
                        0.000630957344480193});
  ModelConfig partial = with(16, 1e4);
  partial.partial_rotary_factor = 0.5;
  check(partial, {1.0, 0.1, 0.01, 0.001});
}

TEST_CASE("llama3 frequencies", "[rotary]") {
  const RopeScaling golden{
      .type = RopeType::llama3, .factor = 8, .original_max_position_embeddings = 16};
  check(with(8, 5e5, golden),
        {0.5760564010955116, 0.004700753866357992, 0.0001767766952966369, 6.647869871181235e-06});

  const RopeScaling published{
      .type = RopeType::llama3, .factor = 8, .original_max_position_embeddings = 8192};
  const auto found = inverse_frequencies(with(128, 5e5, published));  // Llama-3.1-8B
  CHECK(found[17] == Approx(0.030634520893224042).epsilon(1e-14));    // kept
  CHECK(found[30] == Approx(0.0013718935677611381).epsilon(1e-14));   // blended
  CHECK(found[31] == Approx(0.0008567514129196321).epsilon(1e-14));
  CHECK(found[40] == Approx(3.428102195952591e-05).epsilon(1e-14));  // stretched
}

TEST_CASE("yarn frequencies", "[rotary]") {
  check(with(16, 1e6, yarn(16, 4, 1)),
        {1.0, 0.04445698525097307, 0.007905694150420948, 0.0014058533129758727, 0.00025,
         4.4456985250973074e-05, 7.905694150420949e-06, 1.4058533129758728e-06});
  // Both ends beyond the channels, and both ends on channel 0: a step between 0 and 1.
  check(with(8, 3, yarn(40, 6, 0.001)),
        {1.0, 0.6784247193317792, 0.45363235436327737, 0.29768340769163515});
  check(with(8, 100, yarn(6, 32, 1)),
        {1.0, 0.07905694150420949, 0.024999999999999998, 0.007905694150420948});

  const auto found = inverse_frequencies(with(128, 1e6, yarn(16384, 32, 1, 16)));  // NLD 3B
  CHECK(found[1] == Approx(0.8058421877614818).epsilon(1e-14));
  CHECK(found[30] == Approx(0.0006907023388943309).epsilon(1e-14));
  CHECK(found[40] == Approx(1.1114246312743269e-05).epsilon(1e-14));
  CHECK(found[63] == Approx(7.755861004698247e-08).epsilon(1e-14));
}

TEST_CASE("yarn's magnitude follows mscale only when both are given", "[rotary]") {
  RopeScaling scaling = yarn(16, 32, 1, 16);
  const double one = 0.1 * std::log(16.0) + 1;
  CHECK(rotary_magnitude(scaling) == Approx(one));
  scaling.mscale = 2;
  CHECK(rotary_magnitude(scaling) == Approx(one));
  scaling.mscale_all_dim = 1;
  CHECK(rotary_magnitude(scaling) == Approx((0.2 * std::log(16.0) + 1) / one));
  scaling.mscale = 1;
  CHECK(rotary_magnitude(scaling) == 1);
  scaling.type = RopeType::llama3;
  CHECK(rotary_magnitude(scaling) == 1);
}

TEST_CASE("the query's temperature steps at multiples of the original length", "[rotary]") {
  RopeScaling scaling = yarn(16, 32, 1);
  CHECK(query_temperature(scaling, 100) == 1);
  scaling.llama_4_scaling_beta = 0.1;
  CHECK(query_temperature(scaling, 15) == 1);
  CHECK(query_temperature(scaling, 16) == Approx(1 + 0.1 * std::log(2.0)));
  CHECK(query_temperature(scaling, 47) == Approx(1 + 0.1 * std::log(3.0)));
}

TEST_CASE("tables hold cos, sin and temperature and grow", "[rotary]") {
  const auto device = make_cpu_device(1);
  RopeScaling scaling = yarn(16, 4, 1);
  scaling.mscale = 3;
  scaling.mscale_all_dim = 1;
  scaling.llama_4_scaling_beta = 0.25;
  const ModelConfig config = with(10, 1e4, scaling);
  const auto frequencies = inverse_frequencies(config);
  const double magnitude = rotary_magnitude(scaling);

  RotaryCache cache(*device, config, DType::f64);
  const RotaryTable none = cache.table(0);
  CHECK(none.cos.empty());
  for (const std::int64_t positions : {3, 2, 5000}) {
    const RotaryTable table = cache.table(positions);
    REQUIRE(table.cos.rows >= positions);
    REQUIRE(table.sin.rows >= positions);
    REQUIRE(table.temperature.cols >= positions);
    REQUIRE(table.cos.cols == 5);
    for (std::int64_t position = 0; position < positions; position += 1 + positions / 7) {
      for (std::int64_t i = 0; i < 5; ++i) {
        const double angle =
            static_cast<double>(position) * frequencies[static_cast<std::size_t>(i)];
        const std::int64_t at = position * table.cos.stride + i;
        CHECK(table.cos.as<double>()[at] == Approx(magnitude * std::cos(angle)).epsilon(1e-14));
        CHECK(table.sin.as<double>()[at] == Approx(magnitude * std::sin(angle)).epsilon(1e-14));
      }
      CHECK(table.temperature.as<double>()[position] == query_temperature(scaling, position));
    }
    // Rows that are there already are not made again.
    CHECK(cache.table(positions / 2).cos.data == table.cos.data);
  }

  scaling.llama_4_scaling_beta = 0;
  RotaryCache single(*device, with(10, 1e4, scaling), DType::f32);
  const RotaryTable table = single.table(4);
  CHECK(table.temperature.empty());
  CHECK(table.cos.as<float>()[3 * table.cos.stride + 1] ==
        static_cast<float>(magnitude * std::cos(3 * frequencies[1])));
  CHECK_THROWS_AS(RotaryCache(*device, config, DType::bf16), Error);
}
