#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs packages, builds, runs all tests. What CI runs; it ends with CTest's summary.
#   scripts/test.sh [--preset PRESET] [--labels REGEX] [--jobs N] [ctest arguments]
#   scripts/test.sh --labels unit        only the unit tests (other labels: mpi, cli, slow)
#   scripts/test.sh -R checkpoint        only tests with that in their name
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=release jobs=2 arguments=()
while (($#)); do
  case $1 in
    --preset) preset=${2:?--preset wants a name}; shift 2 ;;
    --labels) arguments+=(--label-regex "${2:?--labels wants a pattern}"); shift 2 ;;
    --jobs) jobs=${2:?--jobs wants a number}; shift 2 ;;
    -h | --help) sed -n 's/^#   //p' scripts/test.sh; exit 0 ;;
    *) arguments+=("$1"); shift ;;
  esac
done

scripts/install_packages.sh
scripts/build.sh "$preset"
if ((EUID == 0)); then  # containers
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Tests share few cores: threads that wait must not spin.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
ctest --preset "$preset" --parallel "$jobs" --output-on-failure --no-tests=error \
  --no-label-summary "${arguments[@]}" 2>&1 | tee "$log" || status=$?
grep -E '^[0-9]+% tests passed' "$log" || true  # CTest lists failed and skipped ones after it
exit "$status"
