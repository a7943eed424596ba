#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that wants a real GPU, in 8 minutes: kernels, golden cases, ranks, speed, training.
#   scripts/gpu_check.sh                on the GPU's machine; exit status 1 if a step failed
#   scripts/gpu_check.sh --pack [DIR]   here: what a bare machine needs, as DIR/pack.tar.gz
#   scripts/gpu_check.sh --dry-run      every step on the emulated device, at tiny sizes
#   scripts/gpu_check.sh --only NAME    steps whose name holds NAME
# Runs $BDLM; else the pack $BDLM_PACK or, but for a dry run, gpu_check/pack.tar.gz if it is there;
# else build/bdlm, which it builds if it must.
# Results: $OUT, or gpu_check_results: gpu_check.json and gpu_check.log.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

dry=0 only=""
while (($#)); do
  case $1 in
    -h | --help) sed -nE '3,11s/^# ? ?//p' scripts/gpu_check.sh; exit 0 ;;
    --pack) exec scripts/gpu_pack.sh "${2:-gpu_check}" ;;
    --dry-run) dry=1 ;;
    --only) only=${2:?a name}; shift ;;
    *) echo "gpu_check.sh: unknown: $1; --help lists what there is" >&2; exit 2 ;;
  esac
  shift
done

budget=470 # seconds of SECONDS for all steps
out=${OUT:-gpu_check_results}
mkdir -p "$out"
out=$(realpath "$out") log=$out/gpu_check.log
: >"$log"
rm -f "$out"/kernels.json
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PMIX_MCA_gds=hash
export OMP_WAIT_POLICY=passive OMPI_MCA_mpi_yield_when_idle=1

# ---- the program: how it is started stands in `with` (environment) and `loader`
with=(env) loader=() nccl=1 text=""
mpirun=mpirun
pack=${BDLM_PACK:-gpu_check/pack.tar.gz}
if [[ -z ${BDLM:-} && -f $pack ]] && { ((!dry)) || [[ ${BDLM_PACK:-} ]]; }; then
  mkdir "$work/pack" && tar -xzf "$pack" -C "$work/pack" || exit 2
  # shellcheck source=scripts/gpu_pack_use.sh
  source scripts/gpu_pack_use.sh "$work/pack"
else
  bdlm=$(realpath "${BDLM:-build/bdlm}")
  if [[ ! -x $bdlm ]]; then
    scripts/build.sh release >"$log" 2>&1 || { tail -20 "$log"; exit 2; }
  fi
  tests=$(dirname "$bdlm")/tests/test_kernels
fi
device=cuda
((dry)) && device=emu
bdlm() { limited "${with[@]}" "${loader[@]}" "$bdlm" "$@"; }
ranks() {
  local n=$1
  shift
  OMP_NUM_THREADS=1 limited "${with[@]}" "${loader[@]}" "$mpirun" -n "$n" --oversubscribe \
    --bind-to none "${loader[@]}" "$bdlm" "$@"
}

# ---- steps: each returns its status and leaves a note; 77: skipped
rows=() failed=0
limited() { # the rest of the step's time
  local left=$((step_end - SECONDS))
  ((left > 0)) || return 124
  timeout -k 5 "$left" "$@"
}
step() { # name, limit in seconds, function with arguments
  local name=$1 limit=$2 begin=$SECONDS status result
  shift 2
  [[ -z $only || $name == *"$only"* ]] || return
  step_end=$((begin + limit < budget ? begin + limit : budget)) note=""
  printf '\n==== %s\n' "$name" >>"$log"
  from=$(wc -l <"$log")
  "$@" >>"$log" 2>&1
  status=$?
  case $status in
    0) result=ok ;;
    77) result=skipped ;;
    124 | 137) result=FAILED note="over its $((step_end - begin)) s${note:+; $note}" ;;
    *) result=FAILED ;;
  esac
  if [[ $result == FAILED ]]; then
    failed=1
    own_log | grep -E 'FAILED|^bdlm:|[Ee]rror' | tail -6
  fi
  printf '%-34s %-8s %4d s  %s\n' "$name" "$result" $((SECONDS - begin)) "$note"
  rows+=("$(printf '{"name": "%s", "result": "%s", "seconds": %d, "note": "%s"}' "$name" "$result" \
    $((SECONDS - begin)) "$(tr -d '\000-\037' <<<"$note" | sed 's/[\\"]/\\&/g')")")
}
own_log() { tail -n "+$((from + 1))" "$log"; }
last_match() { own_log | grep -E "$1" | tail -1 | sed 's/  */ /g'; }

facts() {
  bdlm doctor || return
  ((dry)) && { note="no GPU: emulated device"; return; }
  local fields=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,power.limit
  nvidia-smi --query-gpu=$fields,temperature.gpu --format=csv,noheader || return
  note=$(nvidia-smi --query-gpu=$fields --format=csv,noheader | head -1)
  echo "glibc: $(getconf GNU_LIBC_VERSION); loader: ${loader[*]:-of the system}"
}

parity() { # dtype
  local golden=(tests/golden/*/)
  # Rounding turns the routes of a mixture that chooses one expert.
  [[ $1 != bfloat16 ]] || mapfile -t golden < <(printf '%s\n' "${golden[@]}" | grep -v qwen3_moe_edges)
  ((dry)) && golden=("${golden[@]:0:2}")
  bdlm parity "${golden[@]}" --set run.device=$device --set "run.dtype=$1" || return
  note="largest error of the last folder $(last_match 'comparisons, worst' |
    sed -E 's/.*worst ([^ ]+).*/\1/')"
}

kernel_tests() {
  local filter=()
  ((dry)) && filter=("rms_norm*,swiglu*")
  BDLM_TEST_DEVICES=$device limited "${with[@]}" "${loader[@]}" "$tests" "${filter[@]}"
  local status=$?
  note=$(last_match 'assertions? (in|\|)|test cases:|^skipped')
  return $((status == 77 ? 1 : status)) # it skips itself where the device cannot be used
}

two_ranks() { # --set words: ranks share the one GPU
  local golden=(tests/golden/llama_one_document tests/golden/qwen3_packed_prompts)
  ranks 2 parity "${golden[@]}" --set run.device=$device --set parallel.transport=host "$@"
}

nccl_rank() {
  ((nccl)) || { note="no libnccl.so.2 on this machine"; return 77; }
  local recompute
  for recompute in none selective; do
    ranks 1 parity tests/golden/llama_one_document --set run.device=$device \
      --set parallel.transport=nccl --set recompute=$recompute || return
  done
}

bench_kernels() {
  local quick=()
  ((dry)) && quick=(--quick)
  bdlm bench --kernels --device $device --json "$out/kernels.json" "${quick[@]}"
  local status=$?
  note=$(last_match '^copy [0-9]')
  return $status
}

training() { # bfloat16 on text: the loss falls
  local steps=200 small=() source=$text
  ((dry)) && steps=3 small=(--set data.row_tokens=64 --set schedule.warmup_steps=1)
  if [[ -z $source ]]; then
    source=$work/kjv.txt
    xz -dc data/text/kjv.txt.xz >"$source" || return
  fi
  bdlm data prepare --text "$source" --document-separator blank --out "$work/kjv.h5" || return
  bdlm train configs/quickstart.yaml --set run.device=$device --set run.steps=$steps \
    --set parallel.csbp=1 --set "data.train=$work/kjv.h5" --set data.eval= --set eval.every=0 \
    --set checkpoint.every=0 --set log.every=1 --set "run.folder=$work/run" "${small[@]}" || return
  local first last
  read -r first last < <(sed -nE 's/.*"kind":"step".*"loss":([^,]*).*"diffusion_loss".*/\1/p' \
    "$work/run/metrics.jsonl" | awk '{ x[NR] = $1 } END { n = NR < 20 ? 1 : 20
      for (i = 1; i <= n; ++i) { a += x[i]; b += x[NR + 1 - i] } print a / n, b / n }')
  note="loss $first to $last in $steps steps"
  ((dry)) || awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < 0.8 * a) }'
}

bench_step() { # a 3B model's step; with fewer layers where memory does not suffice
  local vocabulary=128256 tokens=32768 tiny=() layers status
  if ((dry)); then
    vocabulary=300 tokens=64
    tiny=(--set model.vocab_size=300 --set model.hidden_size=64 --set model.intermediate_size=96
      --set model.num_attention_heads=2 --set model.num_key_value_heads=1 --set model.head_dim=32
      --set data.row_tokens=64)
  fi
  awk -v v=$((vocabulary - 1)) -v n=$tokens 'BEGIN { srand(1)  # ids without the mask, the last
    for (d = 0; d < 8; ++d) { printf "{\"tokens\": [%d", rand() * v
      for (i = 1; i < n; ++i) printf ", %d", rand() * v
      print "]}" } }' >"$work/random.jsonl"
  bdlm data prepare --jsonl "$work/random.jsonl" --vocab-size $vocabulary \
    --out "$work/random.h5" || return
  for layers in $( ((dry)) && echo 2 || echo 28 20 14 7); do
    local run=(configs/bench_3b.yaml "${tiny[@]}" --set "data.train=$work/random.h5"
      --set "run.device=$device" --set "model.num_hidden_layers=$layers")
    bdlm plan "${run[@]}" || return
    bdlm bench "${run[@]}" --steps 3 2>&1 | tee "$work/bench"
    status=${PIPESTATUS[0]}
    ((status == 0)) || ! grep -qiE 'out of memory|memory' "$work/bench" && break
  done
  local mfu
  mfu=$(last_match '^MFU')
  note="$layers layers; ${mfu:-no MFU of this device}; memory planned$(last_match 'together at most' |
    sed 's/.*together at most//'), measured$(last_match '^memory +[0-9]' | sed 's/memory//')"
  return "$status"
}

sanitizer() { # tool, tests
  ((dry)) && { note="needs a GPU"; return 77; }
  local program
  program=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
  [[ $program ]] || { note="compute-sanitizer is not there"; return 77; }
  BDLM_TEST_DEVICES=cuda limited "$program" --tool "$1" --target-processes all --error-exitcode 9 \
    "${with[@]}" "${loader[@]}" "$tests" "$2" >"$work/sanitizer" 2>&1
  local status=$?
  cat "$work/sanitizer"
  note=$(last_match 'SUMMARY')
  if ((status == 124)) &&
    ! grep -qE '^=+ (Error|Invalid|Race|Barrier|Hazard)' "$work/sanitizer"; then
    note="cut at its time; nothing found until then" status=0
  fi
  return $status
}

((dry)) &&
  echo "dry run: device emu (kernels run on the CPU), tiny sizes; nothing here was run on a GPU"
step "facts" 20 facts
for dtype in float64 float32 bfloat16; do step "golden cases, $dtype" 40 parity $dtype; done
step "kernel tests" 90 kernel_tests
step "2 ranks on the device, csbp 2" 40 two_ranks --set parallel.csbp=2
step "2 ranks on the device, data 2" 40 two_ranks --set parallel.csbp=1
step "1 rank over NCCL" 40 nccl_rank
step "operations against their floors" 90 bench_kernels
step "training, 200 steps" 60 training
step "step of a 3B model" 120 bench_step
step "sanitizer: memcheck" 60 sanitizer memcheck "*"
step "sanitizer: racecheck" 40 sanitizer racecheck "attention*,rms_norm*"
step "sanitizer: synccheck" 30 sanitizer synccheck "attention*,rms_norm*"

{
  printf '{"dry_run": %s, "device": "%s", "failed": %s,\n"steps": [' \
    "$( ((dry)) && echo true || echo false)" "$device" "$( ((failed)) && echo true || echo false)"
  (IFS=,; printf '%s' "${rows[*]}" | sed 's/},{/},\n{/g')
  printf '],\n"kernels": %s}\n' "$(cat "$out/kernels.json" 2>/dev/null || echo null)"
} >"$out/gpu_check.json"
rm -f "$out/kernels.json"
printf '\n%s in %d s%s; %s\n' "$( ((failed)) && echo FAILED || echo 'all passed')" "$SECONDS" \
  "$( ((dry)) && echo ', dry run without a GPU')" "$out/gpu_check.json"
exit $failed
