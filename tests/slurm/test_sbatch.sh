#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/train.sbatch under a real SLURM: it saves on the warning signal and goes back into the
# queue, resumes, saves when SLURM ends it, resumes when it is submitted again, and completes.
#   test_sbatch.sh BDLM        exit status 77: skipped, the reason is printed
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export BDLM
BDLM=$(realpath "${1:?usage: test_sbatch.sh BDLM}")
for program in munged slurmctld slurmd sbatch; do
  PATH=$PATH:/usr/sbin command -v "$program" >/dev/null && continue
  echo "skipped: no $program; apt-get install slurmctld slurmd slurm-client munge"
  exit 77
done
if ((EUID != 0)); then
  echo "skipped: starting a SLURM needs root"
  exit 77
fi

folder=$(mktemp -d)
finish() {
  local status=$?
  ((status == 0)) || tail -n 40 "$folder"/*.log || true
  scancel --full --signal=KILL --user=root 2>/dev/null || true
  "$here/local_slurm.sh" stop "$folder/slurm"
  rm -rf "$folder"
}
trap finish EXIT

export PATH=$PATH:/usr/sbin SLURM_CONF=$folder/slurm/slurm.conf OMP_WAIT_POLICY=passive
KILL_WAIT=5 "$here/local_slurm.sh" start "$folder/slurm"
cd "$folder"
for ((i = 0; i < 200; i += 1)); do echo "document $i of a text that says very little"; done >text
"$BDLM" data prepare --text text --out train.h5
cat >run.yaml <<'END'
run: {folder: run, steps: 1_000_000}
model:
  vocab_size: 258
  hidden_size: 16
  intermediate_size: 32
  num_hidden_layers: 1
  num_attention_heads: 2
objective: {block_size: 8}
data: {train: train.h5, row_tokens: 128}
batch: {rows: 2}
END

until_true() {  # what, command...: within 90 s
  local what=$1
  shift
  for ((i = 0; i < 180; i += 1)); do
    "$@" && return
    sleep 0.5
  done
  echo "FAILED: $what" >&2
  return 1
}
state_is() { [[ $(scontrol -o show job "$job") == *" JobState=$1 "* ]]; }
steps_beyond() { (($(tail -n 1 run/metrics.jsonl 2>/dev/null | grep -o '"step":[0-9]*' |
  cut -d : -f 2 || true) + 0 > $1)); }
saved_step() { local name; name=$(cat run/checkpoints/latest); echo "$((10#${name#step_}))"; }
submit() { job=$(sbatch --parsable --ntasks 2 "$here/../../scripts/train.sbatch" run.yaml "$@"); }
log_has() { grep -q "$1" "bdlm-$job.log"; }
resumes_at() {  # SLURM would leave a requeued job for two minutes
  scontrol update JobId="$job" StartTime=now 2>/dev/null || true
  log_has "resumed .* at step $1\$"
}

submit
until_true "the job trains" steps_beyond 2
scancel --batch --signal=USR1 "$job"
until_true "the warned job is in the queue again" state_is PENDING
first=$(saved_step)
echo "ok: warned, saved step $first, requeued"

until_true "the requeued job resumes" resumes_at "$first"
until_true "the requeued job trains" steps_beyond "$((first + 2))"
scontrol requeue "$job"  # as a pre-emption does: SIGTERM to every process, later SIGKILL
until_true "the requeued job is in the queue again" state_is PENDING
second=$(saved_step)
((second > first))
echo "ok: ended by SLURM, saved step $second"
scancel "$job"

submit --set run.steps="$((second + 5))"
until_true "the new job completes" state_is COMPLETED
log_has "resumed .* at step $second\$"
(($(saved_step) == second + 5))
echo "ok: submitted again, resumed at step $second, completed"
