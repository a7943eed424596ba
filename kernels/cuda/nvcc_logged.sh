#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command; what it prints (ptxas' registers and spills) goes to a file, and to the screen only
# when it fails.   nvcc_logged.sh LOG COMMAND...
log=$1
shift
"$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
