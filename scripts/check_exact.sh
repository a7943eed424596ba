#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that the topology changes nothing: golden cases, training runs on many topologies, stop on
# one and resume on another, bytes against the plan. Prints a table; exit status 1 if a line failed.
#   scripts/check_exact.sh [--quick] [--part PART]... [GOLDEN_FOLDER...]
# default: the folders of tests/golden. A topology is written as
# csbp x tensor x pipeline(virtual stages) x expert x data, 2x2x2(2)x4x1 say.
# --quick   every golden case on every topology of the list, but few combinations, runs and resumes
# --part    golden, runs or checkpoints; default all three
set -uo pipefail

quick=0 golden=() parts=()
while (($#)); do
  case $1 in
    -h | --help) sed -nE '3,9s/^# ? ?//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) quick=1 ;;
    --part) parts+=("${2:?--part wants golden, runs or checkpoints}"); shift ;;
    *) golden+=("$(realpath "$1")") ;;
  esac
  shift
done
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
((${#golden[@]})) || golden=(tests/golden/*/)
((${#parts[@]})) || parts=(golden runs checkpoints)
for part in "${parts[@]}"; do
  [[ -f scripts/check_exact/$part.sh ]] || { echo "check_exact.sh: no part $part" >&2; exit 2; }
done
bdlm=$(realpath "${BDLM:-build/bdlm}")
[[ -x $bdlm ]] || { echo "check_exact.sh: no $bdlm: run scripts/build.sh first" >&2; exit 2; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PMIX_MCA_gds=hash
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive OMPI_MCA_mpi_yield_when_idle=1  # ranks share cores
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
limit=${CHECK_EXACT_LIMIT:-900}  # seconds of one launch: ranks that wait for each other fail a line
ranks() {
  local n=$1; shift
  timeout --foreground "$limit" mpirun -n "$n" --oversubscribe --bind-to none "$@"
}

# words "2x1x2(2)x4x1" -> $n ranks and $words, the --set arguments
words() {
  [[ $1 =~ ^([0-9]+)x([0-9]+)x([0-9]+)(\(([0-9]+)\))?x([0-9]+)x([0-9]+)$ ]] || exit 2
  local csbp=${BASH_REMATCH[1]} tensor=${BASH_REMATCH[2]} pipeline=${BASH_REMATCH[3]}
  local virtual=${BASH_REMATCH[5]:-1} expert=${BASH_REMATCH[6]} data=${BASH_REMATCH[7]}
  n=$((csbp * tensor * pipeline * data))
  words=(--set "parallel.csbp=$csbp" --set "parallel.tensor=$tensor" --set "parallel.pipeline=$pipeline"
         --set "parallel.virtual_stages=$virtual" --set "parallel.expert=$expert")
  ((virtual == 1)) || words+=(--set parallel.schedule=interleaved)
}

table=() failed=0
SECONDS=0
cpu() {  # seconds of all commands up to now, from what bash's times says
  awk 'NR == 2 { gsub("m", " "); gsub("s", ""); print int(60 * $1 + $2 + 60 * $3 + $4) }' "$work/times"
}
row() {  # what, comparisons, largest error, tolerance, ok or FAILED
  table+=("$(printf '%-62s %9s %10s %9s  %s' "$@")")
  times >"$work/times"
  echo "${table[-1]}  ($SECONDS s, CPU $(cpu) s)"
  [[ $5 == ok ]] || failed=1
}
verdict() { awk -v e="$1" -v t="$2" 'BEGIN { print (e != "" && e + 0 <= t + 0) ? "ok" : "FAILED" }'; }

for part in "${parts[@]}"; do source "scripts/check_exact/$part.sh"; done

printf '\n%-62s %9s %10s %9s\n' what compared "error" tolerance
printf '%s\n' "${table[@]}"
cat <<'END_OF_NOTES'
compared: tensors, losses and norms; of a sweep the combinations; steps; hashes of tensors.
1e-10/-8: losses, gradients and residual streams to 1e-10, parameters after optimizer steps to 1e-8.
float32: 1e-4 and 1e-2, since AdamW takes full steps even where a gradient is all rounding.
END_OF_NOTES
((failed == 0)) && echo "everything is exact" || echo "NOT exact"
exit "$failed"
