#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A read-only disk, and one of 700 KiB that is filled with checkpoints. Runs after setup.sh, in a
# mount namespace of its own.
set -eux
mkdir fixed small
mount -t tmpfs -o ro none fixed
bdlm train run.yaml --set run.folder=fixed/out >output 2>&1 && exit 1
grep '^bdlm: run.folder .*fixed/out: cannot be made: Read-only file system' output
mount -t tmpfs -o size=700k none small

train() {  # steps, checkpoints to keep
  mpirun -n 2 bdlm train run.yaml --set run.folder=small/out --set run.steps="$1" \
    --set checkpoint.every=1 --set checkpoint.keep="$2" 2>&1 | tee output
  return "${PIPESTATUS[0]}"
}
train 4 0 && exit 1
grep 'no checkpoint of step 3: .*No space left on device; free space there' output
grep '^bdlm: .*step_00000004.*No space left on device' output
bdlm checkpoint verify small/out | grep 'step 2 is complete'

# Not a byte is left: nothing is lost, and with some room the run goes on.
dd if=/dev/zero of=small/fill bs=1k || true
train 5 0 && exit 1
grep '^bdlm: .*No space left on device' output
bdlm data prepare --text text.txt --out small/text.h5 >output 2>&1 && exit 1
grep 'No space left on device' output
test ! -e small/text.h5 -a ! -e small/text.h5.tmp
bdlm checkpoint verify small/out | grep 'step 2 is complete'
rm -r small/fill small/out/checkpoints/step_00000001
train 5 1
grep 'resumed .*step_00000002' output
bdlm checkpoint verify small/out | grep 'step 5 is complete'
