#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to generated text in about a quarter of an hour on 2 cores, without a GPU or a
# download beyond Debian's packages. Run it again and it goes on from where it was.
#   scripts/quickstart.sh [STEPS]        STEPS: of training, instead of configs/quickstart.yaml's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ranks=4 config=configs/quickstart.yaml run=runs/quickstart data=runs/text
settings=()
[[ ${1:-} ]] && settings=(--set "run.steps=$1" --set "schedule.warmup_steps=$(($1 / 20))")
if ((EUID == 0)); then  # Open MPI wants to be asked twice
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export PMIX_MCA_gds=hash  # Debian 12's PMIx can lock mpirun up otherwise (docs/debugging.md)
bdlm=build/bdlm
mpi=(mpirun -n "$ranks" --oversubscribe --bind-to none)

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
say_where() {
  local status=$?
  ((status == 0)) && return
  echo "quickstart.sh stopped in step $current (status $status); run it again to go on" >&2
}
trap say_where EXIT

current=1; step "1/6 Packages"
scripts/install_packages.sh --build-only

current=2; step "2/6 Build (build/bdlm)"
scripts/build.sh release --target bdlm

current=3; step "3/6 Data: the King James Bible, a byte a token ($data)"
mkdir -p "$data"
if [[ -f $data/train.h5 && -f $data/holdout.h5 ]]; then
  echo "token files are there"
else
  xz -dc data/text/kjv.txt.xz >"$data/kjv.txt"
  "$bdlm" data prepare --text "$data/kjv.txt" --document-separator blank \
    --holdout 0.02 --holdout-out "$data/holdout.h5" --out "$data/train.h5"
fi
"$bdlm" data inspect "$data/train.h5" --documents 1

current=4; step "4/6 Train on $ranks ranks ($run)"
"${mpi[@]}" "$bdlm" train "$config" "${settings[@]}"

current=5; step "5/6 Evaluate on the documents that were held out"
"${mpi[@]}" "$bdlm" eval "$config"
echo "(the entropy of this text's single bytes is 4.358 bits)"

current=6; step "6/6 Generate"
"$bdlm" generate --checkpoint "$run" --prompt "In the beginning " --max-tokens 160 --temperature 0.7

step "Done. What there is now"
cat <<END
  $config       the run file; $bdlm train --help-config explains every key
  $data/train.h5, holdout.h5    token files; $bdlm data inspect shows what is in them
  $run/metrics.jsonl      a line a step
  $run/tensorboard        the same for TensorBoard
  $run/checkpoints        $bdlm checkpoint inspect $run

Next: docs/start.md
END
