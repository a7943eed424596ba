#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs the program for a machine that has a GPU, its driver and CUDA's libraries, and no package of
# ours: DIR/pack.tar.gz, what scripts/gpu_check.sh runs there. Not packed: CUDA, NCCL, the driver.
#   scripts/gpu_pack.sh DIR
# Builds the preset `portable` (x86-64-v3) first. The tar holds
#   bin/     bdlm, libbdlm_cuda.so, libbdlm_emu.so, test_kernels, mpirun
#   lib/     shared libraries of all these; lib/openmpi3: plugins of Open MPI for one machine
#   gcc/     libstdc++, libgcc_s; used where the machine's are older
#   glibc/   C library and loader; used where the machine's are older than `glibc` says
#   cuda/    libcudart, and a libnccl whose every call fails; used where the machine has none
#   share/   help texts of Open MPI;  kjv.txt
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${1:?a folder}
build=build-portable openmpi=/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3

log=$(mktemp) pack=$(mktemp -d)
trap 'rm -rf "$log" "$pack"' EXIT
echo "building $build (minutes, the first time)"
targets=(bdlm bdlm_emu bdlm_cuda test_kernels)
scripts/build.sh portable --target "${targets[@]}" >"$log" 2>&1 || { tail -30 "$log"; exit 1; }

mkdir -p "$pack"/{bin,lib/openmpi3,gcc,glibc,cuda,share}
cp "$build"/{bdlm,libbdlm_cuda.so,libbdlm_emu.so} "$build/tests/test_kernels" "$pack/bin"
cp -L "$(command -v mpirun)" "$pack/bin/mpirun"
strip "$pack"/bin/{bdlm,test_kernels,libbdlm_emu.so}
# Plugins for networks, schedulers and tools would each bring libraries of their own.
for plugin in "$openmpi"/mca_*.so; do
  [[ $plugin =~ _(ofi|ucx|openib|psm2?|slurm|flux|jsm|gridengine|simulator)\.so ||
    $plugin =~ _(monitoring|romio321)\.so ||
    $plugin =~ /mca_(atomic|memheap|scoll|spml|sshmem|crs|filem)_ ]] ||
    cp -L "$plugin" "$pack/lib/openmpi3"
done
cp -rL /usr/share/openmpi "$pack/share/openmpi"
rm -f "$pack"/share/openmpi/*wrapper-data.txt
xz -dc data/text/kjv.txt.xz >"$pack/kjv.txt"

# What they all need. CUDA's own stays out, but for the small runtime.
ldd "$pack"/bin/* "$pack"/lib/openmpi3/*.so | awk '
  $3 ~ /^\// { print $1, $3 }
  $1 ~ /^\/lib.*ld-linux/ { print "ld-linux-x86-64.so.2", $1 }' | sort -u |
  while read -r name path; do
  case $name in
    libcublas* | libnccl* | libcuda.so* | libnv*) ;;
    libcudart*) cp -L "$path" "$pack/cuda/$name" ;;
    libstdc++* | libgcc_s*) cp -L "$path" "$pack/gcc/$name" ;;
    ld-linux* | libc.so* | libm.so* | libpthread* | libdl.so* | librt.so* | libresolv*)
      cp -L "$path" "$pack/glibc/$name" ;;
    *) cp -L "$path" "$pack/lib/$name" ;;
  esac
done
getconf GNU_LIBC_VERSION | awk '{ print $2 }' >"$pack/glibc/version"
git describe --always --dirty >"$pack/version" 2>/dev/null || true

# libbdlm_cuda.so names libnccl; this one lets it be opened where there is none.
{
  echo 'const char* ncclGetErrorString(int c) { (void)c; return "NCCL is not on this machine"; }'
  nm -D --undefined-only "$pack/bin/libbdlm_cuda.so" | awk '
    $2 ~ /^nccl/ && $2 != "ncclGetErrorString" { print "int " $2 "(void) { return 2; }" }'
} | gcc -x c -shared -fPIC -O1 -Wl,-soname,libnccl.so.2 -o "$pack/cuda/libnccl.so.2" -

mkdir -p "$target"
tar -C "$pack" -c . | gzip -9 >"$target/pack.tar.gz"
tree=$(git ls-files -coz --exclude-standard | { xargs -0 stat -c %s 2>/dev/null || true; } |
  awk '{ sum += $1 } END { print sum + 0 }')
size=$(stat -c %s "$target/pack.tar.gz")
awk -v s="$size" -v t="$tree" -v f="$target/pack.tar.gz" 'BEGIN {
  printf "%s: %.1f MiB; with the working tree %.1f MiB\n", f, s / 2^20, (s + t) / 2^20
  if (s + t > 64 * 2^20) { print "more than 64 MiB"; exit 1 } }'
