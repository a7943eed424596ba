#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the commands of README.md and docs/*.md, page by page, in a copy of the repository.
#   run_docs.sh BDLM
# Of the fenced blocks, sh and python ones are run, yaml ones are checked as run files. A line
# <!-- not run: REASON --> before a block leaves it out. substitutions.sed makes long ones short.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
source=$(realpath "$here/../..")
program=$(realpath "${1:?usage: run_docs.sh BDLM}")
# mpirun in a container: root. Threads that wait leave the cores to others.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PMIX_MCA_gds=hash
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=passive

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/blocks" "$folder/tree/build" "$folder/tree/data" "$folder/tree/tests"
cd "$folder/tree"
cp -r "$source"/{README.md,LICENSE,configs,docs,scripts} .
cp -r "$source/data/text" data/
cp -r "$source/tests/golden" tests/
ln -s "$program" build/bdlm
export PATH=$PWD/build:$PATH
# The program under test is there; quickstart's rows are cut down.
printf '#!/bin/sh\necho "build.sh %s: there already"\n' '$*' >scripts/build.sh
sed -i 's/row_tokens: 2048/row_tokens: 256/; s/rows: 16/rows: 4/' configs/quickstart.yaml

# A line a block: number, language, page:line, reason why it is not run.
extract() {
  awk -v blocks="$folder/blocks" '
    FNR == 1 { reason = ""; inside = 0 }
    /^<!-- not run: .* -->$/ { reason = substr($0, 15, length($0) - 18); next }
    /^```/ && !inside {
      inside = 1
      language = substr($0, 4)
      wanted = language ~ /^(sh|python|yaml)$/
      if (wanted) printf "%03d\t%s\t%s:%d\t%s\n", ++count, language, FILENAME, FNR, reason
      file = sprintf("%s/%03d.%s", blocks, count, language)
      reason = ""
      next
    }
    /^```/ { inside = 0; if (wanted) close(file); next }
    inside && wanted { print >file }' "$@"
}

run_block() {  # language, file
  case $1 in
    sh) timeout 150 bash -euo pipefail "$2" ;;
    python) timeout 60 /usr/bin/python3 "$2" ;;
    yaml) cp "$2" block.yaml && build/bdlm train block.yaml --print-config ;;
  esac
}

has_h5py=yes
/usr/bin/python3 -c 'import h5py' 2>/dev/null || has_h5py=
pages=(README.md docs/start.md)
for page in docs/*.md; do
  [[ $page == docs/start.md ]] || pages+=("$page")
done

failed=0 run=0
while IFS=$'\t' read -r number language place reason; do
  [[ $language == python && ! $has_h5py ]] && reason="python3-h5py is not installed"
  if [[ $reason ]]; then
    echo "not run    $place: $reason"
    continue
  fi
  block=$folder/blocks/$number.$language
  sed -i -f "$here/substitutions.sed" "$block"
  began=$SECONDS status=0
  run_block "$language" "$block" >"$folder/output" 2>&1 </dev/null || status=$?
  if ((status == 0)); then
    printf 'ok %4d s  %s\n' $((SECONDS - began)) "$place"
    ((run += 1))
  else
    failed=1
    printf 'FAILED     %s, status %d\n' "$place" "$status"
    sed 's/^/  > /' "$block"
    tail -n 30 "$folder/output" | sed 's/^/    /'
  fi
done < <(extract "${pages[@]}")
echo "$run blocks run"
((run > 0 && failed == 0))
