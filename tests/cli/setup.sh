#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What most tests begin with, in the folder they run in: text.h5 of 12 short documents, held.h5 of
# others, and run.yaml, a model of 10 000 parameters that trains on them in a blink.
set -euo pipefail
for i in {1..16}; do
  printf 'Verse %s, of a text that is long enough to fill a row or two.\n\n' "$i"
done >text.txt
bdlm data prepare --text text.txt --document-separator blank --holdout 0.25 \
  --holdout-out held.h5 --out text.h5 >prepared
cat >run.yaml <<END
run: {steps: 3, folder: out, dtype: float64}
model: {vocab_size: 258, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1,
        num_attention_heads: 2}
objective: {preset: bd3lm, block_size: 4}
data: {train: text.h5, eval: held.h5, row_tokens: 160}
batch: {rows: 2}
END
