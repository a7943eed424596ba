// SPDX-License-Identifier: Apache-2.0
#include "trainer/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/philox.h"

namespace bdlm {
namespace {

/// Rows at positions [past, past + n) of one document: `n` clean rows, or one corrupted block.
StepPlan pass_plan(const ModelConfig& model, const Objective& objective, std::int64_t past,
                   std::int64_t n, bool clean, std::vector<std::int32_t> head) {
  StepPlan plan;
  plan.tokens = n;
  for (const std::int64_t window : model.windows()) {
    const auto same = std::find_if(plan.distinct.begin(), plan.distinct.end(),
                                   [&](const LayerPlan& l) { return l.window == window; });
    plan.layer.push_back(static_cast<int>(same - plan.distinct.begin()));
    if (same != plan.distinct.end()) continue;
    LayerPlan layer;
    layer.window = window;
    layer.out_is_in = true;
    layer.shared_rows = n;  // the cache wants all rows
    KeyPart own{0, n, {}, 0}, cached{0, past, {}, 0};
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t position = past + i;
      const std::int64_t lowest = window > 0 ? std::max<std::int64_t>(0, position - window + 1) : 0;
      const std::int64_t block_end =
          (position / objective.block_size + 1) * objective.block_size - past;
      const bool causal = clean && objective.clean_attention == CleanAttention::causal;
      const std::int64_t end = causal ? i + 1 : std::min(n, block_end);
      own.visible.push_back({static_cast<std::int32_t>(std::max<std::int64_t>(0, lowest - past)),
                             static_cast<std::int32_t>(end)});
      cached.visible.push_back(
          {static_cast<std::int32_t>(std::min(lowest, past)), static_cast<std::int32_t>(past)});
      layer.positions.push_back(static_cast<std::int32_t>(position));
      layer.in.push_back(static_cast<std::int32_t>(i));
    }
    layer.in_clean = clean ? n : 0;
    layer.out = layer.in;
    layer.out_positions = layer.positions;
    layer.own.push_back(std::move(own));
    if (past > 0) layer.peers.push_back({0, {}, past, {std::move(cached)}});
    plan.distinct.push_back(std::move(layer));
  }
  plan.head_rows = head;
  plan.head = std::move(head);
  return plan;
}

struct Guess {
  std::int32_t token = 0;
  double probability = 0;
};

/// One token from a row of logits; the mask is never an answer.
Guess pick(std::span<const double> logits, std::int64_t mask, double temperature, double u) {
  double top = -INFINITY;
  std::int32_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (static_cast<std::int64_t>(i) != mask && logits[i] > top) {
      top = logits[i];
      best = static_cast<std::int32_t>(i);
    }
  const double scale = temperature > 0 ? 1 / temperature : 1;
  double sum = 0;
  std::vector<double> weight(logits.size(), 0);
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (static_cast<std::int64_t>(i) != mask)
      sum += weight[i] = std::exp((logits[i] - top) * scale);
  if (temperature <= 0) return {best, weight[static_cast<std::size_t>(best)] / sum};
  double left = u * sum;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    left -= weight[i];
    if (left < 0 && weight[i] > 0) return {static_cast<std::int32_t>(i), weight[i] / sum};
  }
  return {best, weight[static_cast<std::size_t>(best)] / sum};
}

/// Rows of logits in the host's memory, as double.
class HostLogits {
 public:
  HostLogits(Device& device, Tensor logits) : columns_(static_cast<std::size_t>(logits.cols)) {
    const Buffer wide = device.allocate(logits.rows, logits.cols, DType::f64, Memory::workspace);
    device.copy(logits, wide);
    values_.resize(static_cast<std::size_t>(logits.size()));
    device.copy_to_host(wide, values_.data());
  }
  std::span<const double> row(std::int64_t i) const {
    return std::span(values_).subspan(static_cast<std::size_t>(i) * columns_, columns_);
  }

 private:
  std::size_t columns_;
  std::vector<double> values_;
};

std::vector<std::int32_t> all_rows(std::int64_t n) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

}  // namespace

KeyValueCache::KeyValueCache(Device& device, const ModelConfig& config, DType compute)
    : device_(device),
      width_(config.kv_width()),
      compute_(compute),
      layers_(static_cast<std::size_t>(config.num_hidden_layers)) {}

void KeyValueCache::reserve(Buffer& layer, std::int64_t rows) {
  if (layer.tensor().rows >= rows) return;
  Buffer larger = device_.allocate(std::max(rows, 2 * layer.tensor().rows), width_, compute_,
                                   Memory::activations);
  if (rows_ > 0) device_.copy(layer.tensor().slice_rows(0, rows_), larger.tensor().slice_rows(0, rows_));
  layer = std::move(larger);
}

void KeyValueCache::begin(const LayerPlan& plan, Tensor kv, Purpose) {
  Buffer& layer = layers_[layer_];
  if (record_) {
    reserve(layer, rows_ + kv.rows);
    device_.copy(kv, layer.tensor().slice_rows(rows_, kv.rows));
  }
  past_ = plan.peers.empty() ? nullptr : &plan.peers.front();
}

std::optional<Shard> KeyValueCache::next() {
  if (past_ == nullptr) {
    layer_ = (layer_ + 1) % layers_.size();
    return std::nullopt;
  }
  const Peer* past = std::exchange(past_, nullptr);
  return Shard{past, layers_[layer_].tensor().slice_rows(0, past->receive), {}};
}

std::vector<std::int32_t> generate(Decoder& decoder, KeyValueCache& cache, Device& device,
                                   const Objective& objective,
                                   std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options,
                                   const std::function<void(std::span<const std::int32_t>)>&
                                       on_block) {
  require(objective.corruption == Corruption::mask,
          "generation needs a model trained with objective.corruption: mask");
  require(objective.target_shift == 0 || !prompt.empty(),
          "generation with objective.target_shift: 1 needs a prompt of at least one token");
  const std::int64_t block_size = objective.block_size;
  const std::int64_t mask = objective.mask_token_id;
  const ModelConfig& model = decoder.config();
  const Philox random(options.seed, RandomPurpose::sampling);
  std::vector<std::int32_t> tokens(prompt.begin(), prompt.end());
  const std::size_t end = prompt.size() + static_cast<std::size_t>(options.max_tokens);
  std::vector<double> carried;  // logits of the next block's first token (target_shift 1)

  // Clean tokens up to a block border join the cache.
  const auto commit = [&](std::int64_t n) {
    if (n == 0) return;
    const std::int64_t past = cache.rows();
    const auto last = static_cast<std::int32_t>(n - 1);
    const StepPlan plan = pass_plan(model, objective, past, n, true, {last});
    cache.record(true);
    const HostLogits logits(
        device, decoder.logits(plan, std::span<const std::int32_t>(tokens).subspan(
                                         static_cast<std::size_t>(past), static_cast<std::size_t>(n))));
    cache.record(false);
    cache.commit(n);
    carried.assign(logits.row(0).begin(), logits.row(0).end());
  };
  commit(static_cast<std::int64_t>(prompt.size()) / block_size * block_size);

  bool ended = false;
  while (tokens.size() < end && !ended) {
    const std::int64_t past = cache.rows();
    const std::size_t known = tokens.size();
    const auto n = std::min<std::int64_t>(block_size, static_cast<std::int64_t>(end) - past);
    std::vector<std::int32_t> block(tokens.begin() + past, tokens.end());
    block.resize(static_cast<std::size_t>(n), static_cast<std::int32_t>(mask));
    const StepPlan plan = pass_plan(model, objective, past, n, false, all_rows(n));
    const std::int64_t most_steps = options.steps > 0 ? options.steps : n;
    for (std::int64_t step = 0;; ++step) {
      std::vector<std::int64_t> open;
      for (std::int64_t i = 0; i < n; ++i)
        if (block[static_cast<std::size_t>(i)] == mask) open.push_back(i);
      if (open.empty()) break;
      const HostLogits logits(device, decoder.logits(plan, block));
      std::vector<std::pair<Guess, std::int64_t>> guesses;
      for (const std::int64_t i : open) {
        const std::int64_t row = i - objective.target_shift;
        const double u = random.uniform(static_cast<std::uint64_t>(past + i),
                                        static_cast<std::uint64_t>(step));
        guesses.emplace_back(pick(row < 0 ? std::span<const double>(carried) : logits.row(row),
                                  mask, options.temperature, u),
                             i);
      }
      std::stable_sort(guesses.begin(), guesses.end(), [](const auto& a, const auto& b) {
        return a.first.probability > b.first.probability;
      });
      const std::int64_t steps_left = std::max<std::int64_t>(1, most_steps - step);
      const auto least = (static_cast<std::int64_t>(open.size()) + steps_left - 1) / steps_left;
      for (std::int64_t k = 0; k < static_cast<std::int64_t>(guesses.size()); ++k) {
        const auto& [guess, i] = guesses[static_cast<std::size_t>(k)];
        if (k < least || guess.probability >= options.confidence)
          block[static_cast<std::size_t>(i)] = guess.token;
      }
    }
    tokens.resize(static_cast<std::size_t>(past));
    tokens.insert(tokens.end(), block.begin(), block.end());
    const auto stop = std::find(tokens.begin() + static_cast<std::ptrdiff_t>(known), tokens.end(),
                                static_cast<std::int32_t>(options.end_token));
    ended = stop != tokens.end();
    if (ended) tokens.erase(stop, tokens.end());
    if (on_block) on_block(std::span<const std::int32_t>(tokens).subspan(known));
    if (!ended && tokens.size() < end) commit(n);
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
}

}  // namespace bdlm
