# SPDX-License-Identifier: Apache-2.0
# Point 2 of check_exact.sh: a training run on real text gives the same losses on every topology.
source scripts/check_exact/model_runs.sh

# Every cut of 8 ranks that 4 layers, 4 heads and 8 experts admit; experts over 1 to 8 ranks in turn.
eight_ranks() {  # moe or tied
  local tensor csbp pipeline virtual expert stage turn=0
  for tensor in 1 2 4; do for csbp in 1 2 4 8; do for pipeline in 1 2 4; do
    ((8 % (tensor * csbp * pipeline) == 0)) || continue
    stage=$((8 / pipeline))
    for virtual in 1 2; do
      ((virtual == 1 || pipeline == 2)) || continue
      expert=1
      [[ $1 == tied ]] || while ((expert = 1 << turn++ % 4, expert > stage)); do :; done
      echo "${csbp}x${tensor}x${pipeline}($virtual)x${expert}x$((stage / tensor / csbp))"
    done
  done; done; done
}
turn=0
for model in moe tied; do
  mapfile -t cuts < <(eight_ranks $model)
  ((quick)) && cuts=("${cuts[7]}" "${cuts[11]}" "${cuts[14]}" "${cuts[17]}")
  for t in "${cuts[@]}"; do
    words "$t"
    zero=$((turn % 3 + 1)) micro=$((turn / 3 % 2 + 1))
    ((turn += 1))
    folder="$work/$model-$t"
    train $model "$n" --set "run.folder=$folder" "${words[@]}" --set "parallel.zero=$zero" \
      --set "batch.micro_rows=$micro"
    compare "30 steps, $model: $t, zero $zero, $micro rows a pass" $model "$folder"
    rm -rf "$folder"
  done
done
