// SPDX-License-Identifier: Apache-2.0
// The memory plan against what a step really asks of its device.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "parallel/pipeline_simulation.h"
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

constexpr const char* dense =
    "model: {vocab_size: 21, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 4,\n"
    "        num_attention_heads: 4, num_key_value_heads: 2, qk_norm: true}\n";
constexpr const char* sparse =
    "model: {model_type: llada2_moe, vocab_size: 21, hidden_size: 16, intermediate_size: 24,\n"
    "        num_hidden_layers: 4,\n"
    "        num_attention_heads: 4, num_key_value_heads: 2, qk_norm: true,\n"
    "        num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 8,\n"
    "        num_shared_experts: 1, first_k_dense_replace: 1,\n"
    "        n_group: 4, topk_group: 2}\n";

struct Step {
  MemoryUse plan, real;
  std::int64_t most_layers_held = 0;
  static std::int64_t of(const MemoryUse& use, Memory kind) {
    return use.peak_by_kind[static_cast<std::size_t>(kind)];
  }
  void check(const std::vector<Memory>& kinds) const {
    for (const Memory kind : kinds) {
      INFO(name_of(kind));
      CHECK(of(plan, kind) == of(real, kind));
    }
  }
};
const std::vector<Memory> planned{Memory::parameters, Memory::gradients, Memory::optimizer,
                                  Memory::activations, Memory::exchange};

RunConfig config_of(const char* model, std::vector<std::string> words, int ranks) {
  words.push_back("run.device=cpu");
  return parse_run_file(std::string(model) +
                            "objective: {preset: bd3lm, block_size: 4}\n"
                            "data: {row_tokens: 90}\n"
                            "batch: {micro_rows: 1}\n",
                        "run.yaml", words, ranks);
}

/// A step of packed rows of these documents, run and planned.
Step step(const RunConfig& config, const std::vector<std::vector<std::int64_t>>& rows) {
  const auto traffic = std::make_shared<Traffic>();
  Mesh mesh(config.parallel.mesh, traffic, key_copies(config));
  const auto device = make_device(config, mesh, traffic);
  Engine engine(config, *device, mesh, Mode::train);
  engine.initialize();
  std::vector<CorruptedRow> corrupted;
  for (std::size_t i = 0; i < rows.size(); ++i)
    corrupted.push_back(row_of(rows[i], static_cast<std::int64_t>(i), config));
  const StepBatch batch = make_step_batch(corrupted, config, engine.seat(),
                                         static_cast<std::int64_t>(rows.size()));

  Step result;
  engine.pipeline().trace = [&](std::int64_t layers) {
    result.most_layers_held = std::max(result.most_layers_held, layers);
  };
  device->reset_peak();
  StepBatch used = batch;
  engine.run(used, {}, true);
  result.real = device->memory();
  result.plan = plan_memory(config, batch, mesh.rank());
  return result;
}

/// Whether the words' axes fit into the world; what they leave is replicas.
bool fits(const std::vector<std::string>& words, int ranks) {
  int product = 1;
  for (const std::string& word : words)
    for (const char* axis : {"parallel.tensor=", "parallel.csbp=", "parallel.pipeline="})
      if (word.starts_with(axis)) product *= std::stoi(word.substr(std::string(axis).size()));
  return ranks % product == 0;
}

const std::vector<std::vector<std::string>> meshes{
    {"parallel.zero=2"},
    {"parallel.zero=3"},
    {"parallel.tensor=2"},
    {"parallel.tensor=2", "parallel.zero=3", "recompute=selective"},
    {"parallel.tensor=4", "recompute=full"},
    {"parallel.pipeline=2"},
    {"parallel.pipeline=2", "parallel.zero=3", "recompute=full"},
    {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.virtual_stages=2"},
    {"parallel.pipeline=4"},
    {"parallel.csbp=2", "parallel.tensor=2", "parallel.zero=2"},
    {"parallel.csbp=2", "parallel.pipeline=2", "parallel.zero=3"},
    {"parallel.csbp=2", "parallel.tensor=2", "parallel.pipeline=2", "recompute=selective"},
};

}  // namespace

TEST_CASE("the memory plan is what a step asks for", "[test_memory]") {
  const std::string recompute = GENERATE("none", "selective", "full");
  const std::string exchange = GENERATE("exact", "ring");
  const std::string dtype = GENERATE("float32", "bfloat16");
  const int ranks = mpi_world(std::make_shared<Traffic>())->size();
  const RunConfig config = config_of(dense,
                                     {"run.dtype=" + dtype, "recompute=" + recompute,
                                      "parallel.exchange=" + exchange,
                                      "parallel.csbp=" + std::to_string(ranks)},
                                     ranks);
  INFO(recompute << " " << exchange << " " << dtype);
  step(config, {{70, 13, 7}, {90}}).check(planned);
}

TEST_CASE("the memory plan of every mesh is what a step asks for", "[test_memory]") {
  const int ranks = mpi_world(std::make_shared<Traffic>())->size();
  const std::vector<std::string>& words = GENERATE(from_range(meshes));
  if (!fits(words, ranks)) return;
  std::string all;
  for (const std::string& word : words) all += word + " ";
  INFO(all);
  const std::vector<std::vector<std::int64_t>> rows{{70, 13, 7}, {90}, {33}, {5, 5, 80}, {64}};
  step(config_of(dense, words, ranks), rows).check(planned);
  // All experts are here: how many rows one gets does not matter to what they take together.
  step(config_of(sparse, words, ranks), rows).check(planned);
}

TEST_CASE("a plan of shared experts is as near as their routes are to uniform", "[test_memory]") {
  const int ranks = mpi_world(std::make_shared<Traffic>())->size();
  if (ranks % 2 != 0) return;
  const Step real = step(config_of(sparse, {"parallel.expert=2", "parallel.zero=3"}, ranks),
                         {{70, 13, 7}, {90}, {33}});
  real.check({Memory::parameters, Memory::gradients, Memory::optimizer});
  // Some hundred rows of random routers: a rank's experts may get a third more than planned.
  const auto together = [](const MemoryUse& use) {
    return static_cast<double>(Step::of(use, Memory::activations) +
                               Step::of(use, Memory::exchange));
  };
  CHECK(std::abs(together(real.real) / together(real.plan) - 1) < 0.25);
}

TEST_CASE("a stage holds as many passes as its schedule says", "[test_memory]") {
  const int ranks = mpi_world(std::make_shared<Traffic>())->size();
  if (ranks < 2 || 4 % ranks != 0) return;
  const int chunks = ranks == 2 ? GENERATE(1, 2) : 1;
  const int micro_batches = GENERATE(1, 3, 6);
  std::vector<std::string> words{"parallel.pipeline=" + std::to_string(ranks),
                                 "parallel.virtual_stages=" + std::to_string(chunks)};
  if (chunks > 1) words.push_back("parallel.schedule=interleaved");
  const RunConfig config = config_of(dense, words, ranks);
  const std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(micro_batches), {50});
  const Step real = step(config, rows);
  const auto facts = simulate(config.parallel.schedule, ranks, chunks, micro_batches, 1, 2);
  const int stage = mpi_world(std::make_shared<Traffic>())->rank();
  const std::int64_t layers = shard_of(config, stage).layers();  // of all its chunks, equal ones
  CHECK(real.most_layers_held ==
        facts.peak_in_flight[static_cast<std::size_t>(stage)] * layers / chunks);
  real.check({Memory::activations});
}
