// SPDX-License-Identifier: Apache-2.0
// Sampling: autoregressive over blocks, with a key/value cache of the clean tokens; inside a block
// the most confident tokens are taken first (the decoder of LLaDA and Fast-dLLM, arXiv 2505.22618).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/objective.h"
#include "kernels/device.h"
#include "model/config.h"
#include "model/decoder.h"

namespace bdlm {

struct GenerateOptions {
  std::int64_t max_tokens = 256;  // after the prompt
  std::int64_t steps = 0;         // denoising steps a block at most; 0: one token at least a step
  double confidence = 0.9;        // tokens at least this probable are taken together; above 1: off
  double temperature = 0;         // 0: the most probable token
  std::uint64_t seed = 1;
  std::int64_t end_token = -1;  // stops after the block that holds it; -1: never
};

/// Past keys and values of every layer, given to attention as if another rank had sent them.
class KeyValueCache final : public Exchange {
 public:
  KeyValueCache(Device& device, const ModelConfig& config, DType compute);
  std::int64_t rows() const { return rows_; }
  /// The pass that follows is over clean tokens: its keys and values join the cache at commit().
  void record(bool on) { record_ = on; }
  void commit(std::int64_t rows) { rows_ += rows; }

  void begin(const LayerPlan& plan, Tensor kv, Purpose purpose) override;
  std::optional<Shard> next() override;
  void resume(const LayerPlan&, KeptShards) override {}
  void progress() override {}
  KeptShards keep() override { return {}; }
  bool keeps() const override { return false; }
  void begin_gradients() override {}
  void give_back(const Shard&) override {}
  void end_gradients(Tensor) override {}

 private:
  void reserve(Buffer& layer, std::int64_t rows);

  Device& device_;
  std::int64_t width_;
  DType compute_;
  std::vector<Buffer> layers_;
  std::int64_t rows_ = 0;
  std::size_t layer_ = 0;  // of the pass under way
  bool record_ = false;
  const Peer* past_ = nullptr;  // not yet handed out
};

/// Tokens after the prompt. `decoder` was made with `cache` as its exchange. `on_block` sees each
/// finished block. Needs a prompt when the objective shifts targets.
std::vector<std::int32_t> generate(Decoder& decoder, KeyValueCache& cache, Device& device,
                                   const Objective& objective,
                                   std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options,
                                   const std::function<void(std::span<const std::int32_t>)>&
                                       on_block = {});

}  // namespace bdlm
