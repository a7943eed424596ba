// SPDX-License-Identifier: Apache-2.0
// The memory plan against what a step really asks of its device.
#include <catch2/catch.hpp>
#include <numeric>

#include "trainer/engine.h"
#include "trainer/memory_plan.h"
#include "trainer/model_placement.h"
#include "trainer/run_device.h"

using namespace bdlm;

namespace {

CorruptedRow row_of(std::vector<std::int64_t> documents, std::int64_t index,
                    const RunConfig& config) {
  PackedRow row;
  row.index = index;
  row.documents = std::move(documents);
  const auto tokens = std::accumulate(row.documents.begin(), row.documents.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < tokens; ++i) row.tokens.push_back(static_cast<std::int32_t>(i % 19));
  row.eligible.assign(row.tokens.size(), 1);
  return corrupt(row, config.objective, config.model.config.vocab_size, 1, 1);
}

}  // namespace

TEST_CASE("the memory plan is what a step asks for", "[test_memory]") {
  const std::string recompute = GENERATE("none", "selective", "full");
  const std::string exchange = GENERATE("exact", "ring");
  const std::string dtype = GENERATE("float32", "bfloat16");
  const auto traffic = std::make_shared<Traffic>();
  const int ranks = mpi_world(traffic)->size();
  const RunConfig config = parse_run_file(
      "model: {vocab_size: 20, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 3,\n"
      "        num_attention_heads: 4, num_key_value_heads: 2, qk_norm: true}\n"
      "objective: {preset: bd3lm, block_size: 4}\n"
      "data: {row_tokens: 90}\n",
      "run.yaml",
      {"run.device=cpu", "run.dtype=" + dtype, "recompute=" + recompute,
       "parallel.exchange=" + exchange, "parallel.csbp=" + std::to_string(ranks)},
      ranks);
  Mesh mesh(config.parallel.mesh, traffic, key_copies(config));
  const auto device = make_device(config, mesh, traffic);
  Engine engine(config, *device, mesh, Mode::train);
  engine.initialize();
  const StepBatch batch = make_step_batch(
      {row_of({70, 13, 7}, 0, config), row_of({90}, 1, config)}, config, engine.seat(), 2);

  device->reset_peak();
  StepBatch used = batch;
  engine.run(used, {}, true);
  const MemoryUse real = device->memory();
  const MemoryUse plan = plan_memory(config, batch, mesh.rank());
  INFO(recompute << " " << exchange << " " << dtype << ": " << describe_memory(plan));
  for (const Memory kind : {Memory::parameters, Memory::gradients, Memory::optimizer,
                            Memory::activations, Memory::exchange}) {
    INFO(name_of(kind));
    CHECK(plan.peak_by_kind[static_cast<std::size_t>(kind)] ==
          real.peak_by_kind[static_cast<std::size_t>(kind)]);
  }
}
