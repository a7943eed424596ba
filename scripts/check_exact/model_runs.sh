# SPDX-License-Identifier: Apache-2.0
# A mixture and a dense model with tied embeddings trained on real text: what points 2 and 3 of
# check_exact.sh share. Each is trained on one rank first; other runs are compared with that.
[[ -v model_runs ]] && return
model_runs=ready
xz -dc data/text/kjv.txt.xz | head -c 200000 >"$work/text"
"$bdlm" data prepare --text "$work/text" --document-separator blank --out "$work/train.h5" >/dev/null
run_file() {  # name, last keys of the model, last keys of the objective
  cat >"$work/$1.yaml" <<END
run: {name: $1, folder: out, steps: 30, dtype: float64}
model: {vocab_size: 258, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 4,
        num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, $2}
objective: {preset: bd3lm, block_size: 13$3}
data: {train: train.h5, row_tokens: 100}
batch: {rows: 8}
optimizer: {lr: 1.0e-2}
schedule: {kind: cosine, warmup_steps: 5}
checkpoint: {keep: 3}
END
}
run_file moe "model_type: qwen3_moe, num_experts: 8, num_experts_per_tok: 2,
        moe_intermediate_size: 12, norm_topk_prob: true" ", router_aux_loss_coef: 0.01"
run_file tied "tie_word_embeddings: true, qk_norm: true" ""

train() {  # model, ranks, arguments
  local model=$1 n=$2; shift 2
  ranks "$n" "$bdlm" train "$work/$model.yaml" "$@" >"$work/log" 2>&1 || tail -3 "$work/log"
}
# step, loss, balance term, gradient norm, and what must be equal to the letter: rows, counts,
# fingerprint of data and noise
steps() {
  awk -F, '
    /"kind":"step"/ {
      delete of
      for (i = 1; i <= NF; ++i) { n = index($i, ":"); of[substr($i, 2, n - 3)] = substr($i, n + 1) }
      if (of["aux_loss"] == "null") of["aux_loss"] = 0
      last[of["step"]] = of["loss"] " " of["aux_loss"] " " of["grad_norm"] " " of["first_row"] ":" \
        of["rows"] ":" of["eligible"] ":" of["masked"] ":" of["documents"] ":" of["fingerprint"]
    }
    END { for (s in last) print s, last[s] }' "$1/metrics.jsonl" | sort -k1,1
}
compare() {  # name, model, run folder, first step (1): against the run on one rank
  local wanted count error
  steps "$3" >"$work/steps"
  wanted=$(awk -v first="${4:-1}" '$1 >= first' "$work/reference-$2" | wc -l)
  read -r count error < <(join "$work/reference-$2" "$work/steps" | awk '
    function off(a, b) { d = a - b; d = d < 0 ? -d : d; return a ? d / (a < 0 ? -a : a) : d }
    { for (i = 2; i <= 4; ++i) if (off($i, $(i + 4)) > e) e = off($i, $(i + 4))
      if ($5 != $9) other = 1
      ++n }
    END { print n + 0, other ? "other-data" : e + 0 }')
  [[ $count == "$wanted" && $error != other-data ]] || error=""
  row "$1" "$count" "${error:-differs}" 1e-9 "$(verdict "$error" 1e-9)"
}
for model in moe tied; do
  train $model 1 --set run.folder="$work/$model-one"
  steps "$work/$model-one" >"$work/reference-$model"
  row "30 steps of the model $model on one rank" "$(wc -l <"$work/reference-$model")" - - \
    "$([[ $(wc -l <"$work/reference-$model") == 30 ]] && echo ok || echo FAILED)"
done
