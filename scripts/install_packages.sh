#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that bdlm is built and tested with; needs no network when all are
# there.
#   scripts/install_packages.sh [--build-only]     --build-only: without those that only tests want
set -euo pipefail

build=(build-essential cmake ninja-build ccache libopenmpi-dev openmpi-bin libyaml-cpp-dev
  libspdlog-dev libhdf5-dev libdnnl-dev libopenblas-openmp-dev libcli11-dev nlohmann-json3-dev
  libxxhash-dev catch2 xz-utils)
tests=(python3-h5py)
case ${1:-} in
  '') wanted=("${build[@]}" "${tests[@]}") ;;
  --build-only) wanted=("${build[@]}") ;;
  *) echo "usage: scripts/install_packages.sh [--build-only]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "install_packages.sh: this is not Debian or Ubuntu; install what matches: ${wanted[*]}" >&2
  exit 1
fi

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == *installed* && $status != not-installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "packages: all ${#wanted[@]} are installed"
  exit 0
fi

echo "packages: installing ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install_packages.sh: run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}
# The lists may be recent enough; if not, they are fetched and it is tried again.
if ! apt install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 &&
  ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; then
  echo "install_packages.sh: apt-get could not install ${missing[*]}: see its messages above;" \
    "is a Debian mirror reachable?" >&2
  exit 1
fi
