# SPDX-License-Identifier: Apache-2.0
# Points 1 and 4 of check_exact.sh: golden cases against the float64 reference, bytes against the
# plan.
reports=0 bytes=ok f64=1e-10/-8

parity() {  # name, ranks, tolerance to show, arguments of bdlm parity: a line for all folders
  local name=$1 n=$2 tolerance=$3 count error combinations left_out; shift 3
  if ! ranks "$n" "$bdlm" parity "$@" >"$work/parity" 2>&1; then
    grep -E 'FAILED|^bdlm:' "$work/parity" | head -5
    grep -q '^bytes of.*FAILED' "$work/parity" && bytes=FAILED
    row "$name, $n ranks" - - "$tolerance" FAILED
    return
  fi
  # "...: 55 comparisons, worst 1.2e-15 ..." a folder, or after a sweep
  # "... on 3 ranks: 264 of 264 combinations passed, largest error 1.2e-15 ..."
  read -r count error combinations left_out < <(awk '
    / left out: / { ++left; next }
    { for (i = 1; i <= NF; ++i) {
        if ($i == "comparisons,") { n += $(i - 1); ++c }
        if ($i == "combinations") { n += $(i - 1); c += $(i - 1) }
        if (($i == "worst" || $i == "error") && $(i + 1) + 0 > e) e = $(i + 1) + 0 } }
    END { print n + 0, e + 0, c + 0, left + 0 }' "$work/parity")
  ((reports += combinations))
  ((left_out == 0)) || name+=" ($left_out unfit)"
  row "$name, $n ranks" "$count" "$error" "$tolerance" "$( ((count)) && echo ok || echo FAILED)"
}

# The topologies that issue 4 names. Folders whose model has not the heads, layers or experts for one
# are left out of it.
topologies=("2x2x1x1x1" "1x1x2x1x1" "1x1x4x1x1" "1x1x2(2)x1x1" "2x1x2x1x1" "2x2x2x1x1"
            "1x2x2(2)x1x2" "2x1x1x2x1" "2x1x1x4x2" "2x2x1x4x1" "2x2x2x2x1" "3x1x1x1x1" "4x1x1x4x1"
            "1x1x1x2x2")
named() {  # folders of the golden ones with such a name; all where none has, so that others can be given
  local folder found=()
  for folder in "${golden[@]}"; do [[ $folder =~ $1 ]] && found+=("$folder"); done
  ((${#found[@]})) || found=("${golden[@]}")
  some=("${found[@]}")
}

for n in 1 8; do parity "golden, csbp $n" "$n" $f64 "${golden[@]}" --set "parallel.csbp=$n"; done
turn=0 recomputes=(none selective full)
for t in "${topologies[@]}"; do
  words "$t"
  sweep=(--sweep zero) name="golden, $t, zero x sharding x recompute"
  if ((quick)); then
    zero=$((turn % 3 + 1)) recompute=${recomputes[(turn + turn / 3) % 3]}
    sweep=(--set "parallel.zero=$zero" --set "recompute.mode=$recompute")
    name="golden, $t, zero $zero, recompute $recompute"
    ((turn += 1))
  fi
  parity "$name" "$n" $f64 "${golden[@]}" --skip-unfit "${words[@]}" "${sweep[@]}"
done
if ((quick)); then
  named qwen3_moe_balance
  parity "golden, every topology" 4 $f64 "${some[@]}" --sweep topologies
  words "2x2x2x2x1"
  named llada2_moe_groups
  parity "golden, 2x2x2x2x1, zero x sharding x recompute" 8 $f64 "${some[@]}" --skip-unfit \
    "${words[@]}" --sweep zero
else
  for n in 2 4; do parity "golden, every topology" "$n" $f64 "${golden[@]}" --sweep topologies; done
  named "llama_six_layers|_moe_"
  parity "golden, every topology" 8 $f64 "${some[@]}" --sweep topologies
  named "packed_prompts|causal_ar|moe_balance"
  parity "golden, all modes" 3 $f64 "${some[@]}" --sweep modes
fi
words "2x2x1x1x1"
parity "golden, 2x2x1x1x1, float32" 4 1e-4/-2 "${golden[@]}" --skip-unfit "${words[@]}" \
  --set run.dtype=float32
for keep in true false; do
  parity "golden, recompute full, keep_remote_kv $keep" 3 $f64 "${golden[@]}" \
    --set parallel.csbp=3 --set recompute=full --set "parallel.keep_remote_kv=$keep" \
    --set batch.loss_chunk=3
done
parity "golden, rows joined in one pass" 4 $f64 "${golden[@]}" --set batch.micro_rows=2 \
  --set parallel.csbp=2 --set parallel.tensor=2
row "bytes of every purpose less the plan's, in all of these" $((reports)) 0 0 $bytes

plans=$(dirname "$bdlm")/tests/test_parallel
if [[ -x $plans ]]; then
  count=$("$plans" 2>&1 | sed -nE 's/^All tests passed \(([0-9]+) assertions.*/\1/p')
  row "plans and schedules: the unit tests of parallel" "${count:--}" - - \
    "$([[ $count ]] && echo ok || echo FAILED)"
fi
