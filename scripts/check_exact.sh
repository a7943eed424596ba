#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that the topology changes nothing: golden cases, one training run on many topologies, stop
# and resume, bytes against the plan. Prints a table; exit status 1 if a line of it failed.
#   scripts/check_exact.sh [--quick] [GOLDEN_FOLDER...]     default: the folders of tests/golden
# --quick: every golden case, but the full sweep of modes on two of them and fewer topologies.
set -uo pipefail

quick=0 golden=()
for argument in "$@"; do
  case $argument in
    -h | --help) sed -nE '3,6s/^# ? ?//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) quick=1 ;;
    *) golden+=("$(realpath "$argument")") ;;
  esac
done
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
((${#golden[@]})) || golden=(tests/golden/*/)
bdlm=$(realpath "${BDLM:-build/bdlm}")
[[ -x $bdlm ]] || { echo "check_exact.sh: no $bdlm: run scripts/build.sh first" >&2; exit 2; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PMIX_MCA_gds=hash
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive OMPI_MCA_mpi_yield_when_idle=1  # ranks share cores
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ranks() { local n=$1; shift; mpirun -n "$n" --oversubscribe --bind-to none "$@"; }

table=() failed=0
SECONDS=0
row() {  # what, comparisons, largest error, tolerance, ok or FAILED
  table+=("$(printf '%-58s %9s %10s %9s  %s' "$@")")
  echo "${table[-1]}  (${SECONDS} s)"
  [[ $5 == ok ]] || failed=1
}
verdict() { awk -v e="$1" -v t="$2" 'BEGIN { print (e != "" && e + 0 <= t + 0) ? "ok" : "FAILED" }'; }

# ---- 1 and 4: golden cases against the float64 reference, bytes against the plan
reports=0 bytes=ok f64=1e-10/-8
parity() {  # name, ranks, tolerance to show, arguments of bdlm parity: a line for all folders
  local name=$1 n=$2 tolerance=$3 count error; shift 3
  if ! ranks "$n" "$bdlm" parity "$@" >"$work/parity" 2>&1; then
    grep -E 'FAILED|^bdlm:' "$work/parity" | head -5
    grep -q '^bytes of.*FAILED' "$work/parity" && bytes=FAILED
    row "$name, $n ranks" - - "$tolerance" FAILED
    return
  fi
  # "...: 55 comparisons, worst 1.2e-15 ..." a folder, or after a sweep of modes
  # "... on 3 ranks: 264 of 264 combinations passed, largest error 1.2e-15 ..."
  read -r count error combinations < <(awk '
    { for (i = 1; i <= NF; ++i) {
        if ($i == "comparisons,") { n += $(i - 1); ++c }
        if ($i == "combinations") { n += $(i - 1); c += $(i - 1) }
        if (($i == "worst" || $i == "error") && $(i + 1) + 0 > e) e = $(i + 1) + 0 } }
    END { print n, e + 0, c }' "$work/parity")
  ((reports += combinations))
  row "$name, $n ranks" "$count" "$error" "$tolerance" ok
}
for n in 1 2 3 4 8; do parity "golden cases, csbp $n" "$n" $f64 "${golden[@]}" --set "parallel.csbp=$n"; done
parity "golden cases, csbp 1 x data 2" 2 $f64 "${golden[@]}"
parity "golden cases, csbp 2 x data 2" 4 $f64 "${golden[@]}" --set parallel.csbp=2
for n in 1 3; do
  parity "golden cases, csbp $n, float32" "$n" 1e-4/-2 "${golden[@]}" --set run.dtype=float32 \
    --set "parallel.csbp=$n"
done
for keep in true false; do
  parity "golden cases, recompute full, keep_remote_kv $keep" 3 $f64 "${golden[@]}" --set parallel.csbp=3 \
    --set recompute=full --set "parallel.keep_remote_kv=$keep" --set batch.loss_chunk=3
done
parity "golden cases, rows joined in one pass" 2 $f64 "${golden[@]}" --set batch.micro_rows=2 \
  --set parallel.csbp=2
if ((quick)); then
  parity "all modes (sweep) of two cases" 3 $f64 "${golden[@]:0:2}" --sweep modes
else
  for n in 1 2 3 4 8; do parity "all modes (sweep)" "$n" $f64 "${golden[@]}" --sweep modes; done
fi
row "bytes of 5 purposes less the plan's, in all of these" $((5 * reports)) 0 0 $bytes
plans=$(dirname "$bdlm")/tests/test_parallel
if [[ -x $plans ]]; then
  count=$("$plans" 2>&1 | sed -nE 's/^All tests passed \(([0-9]+) assertions.*/\1/p')
  row "plans: nothing sent unread, the formulas of one document" "${count:--}" - - \
    "$([[ $count ]] && echo ok || echo FAILED)"
fi

# ---- 2: one run on real text, whatever the topology
xz -dc data/text/kjv.txt.xz | head -c 400000 >"$work/text"
"$bdlm" data prepare --text "$work/text" --document-separator blank --out "$work/train.h5" >/dev/null
cat >"$work/run.yaml" <<'END'
run: {name: exact, folder: out, steps: 50, dtype: float64}
model: {vocab_size: 258, hidden_size: 32, intermediate_size: 96, num_hidden_layers: 3,
        num_attention_heads: 4, num_key_value_heads: 2, qk_norm: true}
objective: {preset: bd3lm, block_size: 13}
data: {train: train.h5, row_tokens: 700}
batch: {rows: 4}
optimizer: {lr: 1.0e-3}
schedule: {kind: cosine, warmup_steps: 5}
checkpoint: {keep: 3}
END
train() { local n=$1; shift; ranks "$n" "$bdlm" train "$work/run.yaml" "$@" >"$work/log" 2>&1; }
# step, loss, and what must be equal to the letter: rows, counts, fingerprint of data and noise
steps() {
  sed -nE 's/.*"step":([0-9]+),"steps".*"loss":([^,]+),"diffusion.*"first_row":([0-9]+),"rows":([0-9]+),"eligible":([0-9]+),"masked":([0-9]+),"documents":([0-9]+).*"fingerprint":"([0-9a-f]+)".*/\1 \2 \3:\4:\5:\6:\7:\8/p' \
    "$1/metrics.jsonl" | awk '{ last[$1] = $0 } END { for (s in last) print last[s] }' | sort -k1,1
}
compare() {  # name, run folder, tolerance, first step (1): against the run on one rank
  steps "$2" >"$work/steps"
  local wanted
  wanted=$(awk -v first="${4:-1}" '$1 >= first' "$work/reference" | wc -l)
  join "$work/reference" "$work/steps" | awk '
    { d = ($2 - $4) / $2; if (d < 0) d = -d; if (d > e) e = d; if ($3 != $5) other = 1; ++n }
    END { print n + 0, other ? "other-data" : e + 0 }' >"$work/sum"
  read -r count error <"$work/sum"
  [[ $count == "$wanted" && $error != other-data ]] || error=""
  row "$1" "$count" "${error:-differs}" "$3" "$(verdict "$error" "$3")"
}
run_and_compare() {  # ranks, csbp, micro_rows
  local folder="$work/run-$1-$2-$3"
  train "$1" --set "run.folder=$folder" --set "parallel.csbp=$2" --set "batch.micro_rows=$3" ||
    tail -2 "$work/log"
  compare "50 steps: csbp $2 x data $(($1 / $2)), $3 rows a pass" "$folder" 1e-9
}
train 1 --set run.folder="$work/one" || { cat "$work/log"; exit 1; }
steps "$work/one" >"$work/reference"
topologies=("1 1 2" "1 1 4" "2 2 1" "2 1 2" "3 3 1" "4 4 4" "4 2 1" "8 4 2" "8 8 1")
((quick)) && topologies=("1 1 4" "3 3 1" "4 2 2")
((quick)) || topologies+=("3 1 1" "4 1 1" "8 2 1" "8 1 1")
for t in "${topologies[@]}"; do read -r n csbp micro <<<"$t"; run_and_compare "$n" "$csbp" "$micro"; done

# ---- 3: stop and resume, on the same ranks to the last bit, on others to rounding
# of every tensor and moment; the last one is the manifest's own, which holds the folder's name
hashes() { grep -hoE '"xxh64": ?"[0-9a-f]+"' "$1"/checkpoints/step_00000050/manifest.json | head -n -1; }
resume() {  # folder with a checkpoint of step 17, ranks and csbp to go on with
  local folder="$1-on-$2-$3"
  train "$2" --set "run.folder=$folder" --set "parallel.csbp=$3" --resume "$1/checkpoints/step_00000017" ||
    tail -2 "$work/log"
  compare "  of $(basename "$1"), resumed on csbp $3 x data $(($2 / $3))" "$folder" 1e-9 18
}
for n in 2 4; do
  train "$n" --set "run.folder=$work/csbp-$n" --set "parallel.csbp=$n" --set checkpoint.every=17 ||
    tail -2 "$work/log"
  compare "50 steps saved at 17: csbp $n" "$work/csbp-$n" 1e-9
done
resume "$work/csbp-2" 2 2
resumed=$work/csbp-2-on-2-2
if diff <(steps "$work/csbp-2" | awk '$1 > 17') <(steps "$resumed") && [[ -s $work/steps ]] &&
  diff <(hashes "$work/csbp-2") <(hashes "$resumed"); then
  row "  the same, losses and weights to the last bit" "$(hashes "$resumed" | wc -l)" 0 0 ok
else
  row "  the same, losses and weights to the last bit" - differs 0 FAILED
fi
resume "$work/csbp-4" 3 3
((quick)) || { resume "$work/csbp-4" 1 1; resume "$work/csbp-4" 4 2; resume "$work/csbp-2" 8 2; }

# kill -9 of mpirun and its ranks while a save is under way; then the run goes on to its end.
descendants() {
  local child
  for child in $(pgrep -P "$1"); do echo "$child"; descendants "$child"; done
}
killed=$work/killed halves=0
for at in 5 16 30; do
  train 2 --set "run.folder=$killed" --set parallel.csbp=2 --set checkpoint.every=1 &
  launcher=$!
  reached=0
  until ((reached >= at)) || ! kill -0 $launcher 2>/dev/null; do
    sleep 0.05
    reached=$(grep -c . "$killed/metrics.jsonl" 2>/dev/null)
  done
  mapfile -t processes < <(descendants $launcher)
  # Without a subshell and so without delay, while a save lasts a few milliseconds.
  until compgen -G "$killed/checkpoints/*.partial/shard*" >/dev/null; do kill -0 $launcher || break; done
  kill -9 "${processes[@]}" 2>/dev/null
  wait $launcher 2>/dev/null
  compgen -G "$killed/checkpoints/*.partial" >/dev/null && ((halves += 1))
done
train 2 --set "run.folder=$killed" --set parallel.csbp=2 --set checkpoint.every=1 || tail -2 "$work/log"
grep -q '^resumed .* at step' "$work/log" || echo "the killed run was not resumed"
compare "killed with -9, $halves of 3 times amid a save, and resumed" "$killed" 1e-9

printf '\n%-58s %9s %10s %9s\n' what compared "error" tolerance
printf '%s\n' "${table[@]}"
cat <<'END'
compared: tensors, losses and norms; of a sweep the combinations of modes; steps; hashes of tensors.
1e-10/-8: losses, gradients and residual streams to 1e-10, parameters after optimizer steps to 1e-8.
float32: 1e-4 and 1e-2, since AdamW takes full steps even where a gradient is all rounding.
END
((failed == 0)) && echo "everything is exact" || echo "NOT exact"
exit "$failed"
