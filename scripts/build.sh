#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds a preset of CMakePresets.json: release (the default), debug, sanitize, portable.
#   scripts/build.sh [PRESET] [cmake --build arguments]
#   scripts/build.sh release --target bdlm      only the program, build/bdlm
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=release
if [[ ${1:-} && ${1:-} != -* ]]; then
  preset=$1
  shift
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" >"$log" 2>&1; then
  cat "$log" >&2
  echo "build.sh: configuring '$preset' failed; is a package missing?" \
    "scripts/install_packages.sh" >&2
  exit 1
fi
cmake --build --preset "$preset" --parallel "${BUILD_JOBS:-$(nproc)}" "$@"
