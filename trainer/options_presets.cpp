// SPDX-License-Identifier: Apache-2.0
// Published objectives as sets of defaults. Mask ids are not among them: they belong to a
// vocabulary, and the family's config.json names them.
#include "trainer/options.h"

namespace bdlm {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> table = {
      {"bd3lm",
       "BD3-LM (arXiv 2503.09573): NELBO weight 1/t, a noise level a block",
       {{"objective.block_size", "16"},
        {"objective.clean_attention", "block_causal"},
        {"objective.level", "stratified"},
        {"objective.granularity", "block"},
        {"objective.range", "[1e-3, 1]"},
        {"objective.weight", "nelbo"},
        {"objective.target_shift", "0"}}},
      {"fast_dllm_v2",
       "Fast-dLLM v2: complementary views, targets shifted by one, mean over hidden tokens",
       {{"objective.block_size", "32"},
        {"objective.clean_attention", "block_causal"},
        {"objective.level", "independent"},
        {"objective.granularity", "block"},
        {"objective.range", "[1e-3, 1]"},
        {"objective.views", "complementary"},
        {"objective.weight", "none"},
        {"objective.target_shift", "1"},
        {"objective.normalize", "masked"}}},
      {"nemotron_labs",
       "Nemotron-Labs-Diffusion (arXiv 2607.05722): causal clean copy that also learns the next "
       "token, weight 1/p, a noise level a document",
       {{"objective.block_size", "32"},
        {"objective.clean_attention", "causal"},
        {"objective.level", "independent"},
        {"objective.granularity", "sequence"},
        {"objective.range", "[1e-3, 1]"},
        {"objective.weight", "nelbo"},
        {"objective.normalize", "masked"},
        {"objective.diffusion_loss_weight", "0.3"},
        {"objective.ar_loss_weight", "1"},
        {"objective.ar_normalize", "own"}}},
      {"llada2",
       "LLaDA 2 fine-tuning: noise levels 0.3 to 0.8, a level a document, mean over hidden tokens",
       {{"objective.block_size", "32"},
        {"objective.clean_attention", "block_causal"},
        {"objective.level", "independent"},
        {"objective.granularity", "sequence"},
        {"objective.range", "[0.3, 0.8]"},
        {"objective.weight", "none"},
        {"objective.normalize", "masked"}}},
      {"sdar",
       "SDAR: small blocks, weight 1/p, a noise level a document",
       {{"objective.block_size", "4"},
        {"objective.clean_attention", "block_causal"},
        {"objective.level", "independent"},
        {"objective.granularity", "sequence"},
        {"objective.range", "[1e-3, 1]"},
        {"objective.weight", "nelbo"}}},
      {"diffusion_gemma",
       "DiffusionGemma: random tokens instead of a mask, every token scored, causal clean copy "
       "that "
       "also learns the next token",
       {{"objective.block_size", "256"},
        {"objective.clean_attention", "causal"},
        {"objective.corruption", "uniform"},
        {"objective.level", "independent"},
        {"objective.granularity", "sequence"},
        {"objective.range", "[1e-3, 1]"},
        {"objective.weight", "none"},
        {"objective.scored", "eligible"},
        {"objective.ar_loss_weight", "1"},
        {"objective.ar_normalize", "own"}}},
  };
  return table;
}

}  // namespace bdlm
