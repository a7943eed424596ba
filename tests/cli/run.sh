#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a text file of commands and what they must print: run.sh FILE.test BDLM
#
#   # a comment
#   $ bdlm train run.yaml          a bash command; all of a file run in one fresh folder
#   status 2                       its exit status, 0 where the line is missing
#   run.yaml:3: ... unknown key    a line of stdout or stderr; ... stands for any text
#   ~ ^step [0-9]+/10              the same as a regular expression
#
# Expected lines must come in this order; others may stand between them. BDLM_SOURCE is the
# repository, `bdlm` the program under test.
set -u

text=$(realpath "$1")
program=$(realpath "$2")
BDLM_SOURCE=$(realpath "$(dirname "$0")/../..")
export BDLM_SOURCE
# mpirun in a container: root, more ranks than cores, no binding; and ranks that wait make room.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1 OMP_WAIT_POLICY=passive
# The shared-memory store of Debian 12's PMIx can lock mpirun up after a rank has failed.
export PMIX_MCA_gds=hash
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/work"
ln -s "$program" "$folder/bin/bdlm"
export PATH="$folder/bin:$PATH"
cd "$folder/work" || exit 1

command="" wanted=0 at=0 failed=0
expected=()

matches() {  # line, expectation
  if [[ $2 == "~ "* ]]; then
    [[ $1 =~ ${2:2} ]]
    return
  fi
  local line=$1 left=$2 part=${2%%...*}
  [[ $left == *...* ]] || { [[ $line == "$left" ]]; return; }
  [[ $line == "$part"* ]] || return
  line=${line#"$part"} left=${left#*...}
  while [[ $left == *...* ]]; do
    part=${left%%...*}
    [[ $line == *"$part"* ]] || return
    line=${line#*"$part"} left=${left#*...}
  done
  [[ $line == *"$left" ]]
}

check() {
  [[ -z $command ]] && return
  timeout 100 bash -c "$command" >"$folder/output" 2>&1 </dev/null  # a hang is told apart: 124
  local status=$? line i=0
  while IFS= read -r line && ((i < ${#expected[@]})); do
    if matches "$line" "${expected[i]}"; then ((i += 1)); fi
  done < <(cat "$folder/output"; echo)
  if ((status != wanted)) || ((i < ${#expected[@]})); then
    failed=1
    echo "$text:$at: \$ $command"
    ((status != wanted)) && echo "  exit status $status, expected $wanted"
    ((i < ${#expected[@]})) && echo "  no line for: ${expected[i]}"
    echo "  output was:"
    sed 's/^/    /' "$folder/output"
  fi
  command="" wanted=0
  expected=()
}

number=0
while IFS= read -r line || [[ -n $line ]]; do
  ((number += 1))
  case $line in
    "#"* | "") ;;
    "$ "*)
      check
      command=${line:2}
      at=$number
      ;;
    "status "*) wanted=${line:7} ;;
    *) expected+=("$line") ;;
  esac
done <"$text"
check
exit $failed
