# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts/gpu_check.sh with the folder of an unpacked pack (scripts/gpu_pack.sh): sets
# bdlm, tests, mpirun, text, nccl, and how programs are started: `with` (environment) and `loader`.
# Only they get the pack's libraries, not the machine's own programs.
# shellcheck shell=bash disable=SC2034
pack_folder=$1

# Folder of a library of CUDA: beside nvcc, where the loader looks, or wherever it lies.
folder_of() {
  local name=$1 loaded=${LD_LIBRARY_PATH:-} nvcc folder
  nvcc=$(command -v nvcc || true)
  for folder in ${loaded//:/ } ${nvcc:+"$(dirname "$(realpath "$nvcc")")"/../lib64} \
    /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib \
    "$(ldconfig -p 2>/dev/null | awk -v n="$name" '$1 == n { print $NF; exit }' | xargs -r dirname)"; do
    [[ -n $folder && -e $folder/$name ]] && { realpath "$folder"; return; }
  done
  timeout 20 find /opt /usr /root -name "$name" -not -path '*/stubs/*' -print -quit \
    2>/dev/null | xargs -r dirname
}
older() { [[ $1 != "$2" && $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -1) == "$1" ]]; }

pack_libraries=$pack_folder/lib
pack_stdcxx=$(ldconfig -p 2>/dev/null | awk '$1 == "libstdc++.so.6" { print $NF; exit }')
grep -q GLIBCXX_3.4.30 "${pack_stdcxx:-/none}" 2>/dev/null || pack_libraries+=:$pack_folder/gcc
for pack_name in libcudart.so.13 libcublas.so.13 libcublasLt.so.13 libnccl.so.2; do
  pack_found=$(folder_of $pack_name)
  if [[ -z $pack_found ]]; then
    [[ $pack_name == libnccl* ]] && nccl=0
    [[ $pack_name == libcublas* ]] &&
      echo "gpu_check.sh: no $pack_name found: no operation can run on the GPU"
    mkdir -p "$pack_folder/cuda_used"
    cp "$pack_folder/cuda/$pack_name" "$pack_folder/cuda_used" 2>/dev/null
    pack_found=$pack_folder/cuda_used
  fi
  [[ :$pack_libraries: == *":$pack_found:"* ]] || pack_libraries+=:$pack_found
done
pack_libraries+=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# A C library as new as the one that all was built with runs it. On an older machine everything
# runs on the pack's, by its loader. The driver's libcuda is then opened under a C library that it
# has not been tested with; it asks for nothing newer than its own system has, so it should open.
pack_system=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }')
if older "${pack_system:-0}" "$(cat "$pack_folder/glibc/version")"; then
  pack_own=$pack_folder/glibc:$pack_folder/gcc
  pack_driver=/usr/local/nvidia/lib64:/usr/lib/x86_64-linux-gnu
  loader=("$pack_folder/glibc/ld-linux-x86-64.so.2" --library-path
    "$pack_own:$pack_libraries:$pack_driver")
fi
with=(env "LD_LIBRARY_PATH=$pack_libraries" "BDLM_BACKENDS=$pack_folder/bin"
  "OPAL_PREFIX=$pack_folder" "OPAL_LIBDIR=$pack_folder/lib" "OPAL_BINDIR=$pack_folder/bin"
  "OPAL_PKGLIBDIR=$pack_folder/lib/openmpi3" "OPAL_PKGDATADIR=$pack_folder/share/openmpi"
  "OMPI_MCA_mca_component_path=$pack_folder/lib/openmpi3" OMPI_MCA_plm=isolated
  "PMIX_INSTALL_PREFIX=$pack_folder" OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1)
bdlm=$pack_folder/bin/bdlm tests=$pack_folder/bin/test_kernels mpirun=$pack_folder/bin/mpirun
text=$pack_folder/kjv.txt
