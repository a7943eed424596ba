#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real SLURM of one node (munge, slurmctld, slurmd) for testing batch scripts. Needs root and
# Debian's slurmctld, slurmd, slurm-client, munge.
#   local_slurm.sh start FOLDER     state goes to FOLDER; clients need SLURM_CONF=FOLDER/slurm.conf
#   local_slurm.sh stop FOLDER
set -euo pipefail

usage="usage: local_slurm.sh start|stop FOLDER"
action=${1:?$usage}
folder=$(realpath -m "${2:?$usage}")
export SLURM_CONF=$folder/slurm.conf

start() {
  local host port=$((20000 + RANDOM % 10000))  # beside a SLURM that may be there
  host=$(hostname -s)
  mkdir -p "$folder/state" "$folder/spool" /run/munge
  chown munge:munge /run/munge
  if ! munge -n >/dev/null 2>&1; then
    runuser -u munge -- munged --force --pid-file="/run/munge/bdlm.pid"
    touch "$folder/munged_is_ours"
  fi
  cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$host
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
KillWait=${KILL_WAIT:-30}
NodeName=$host CPUs=$(nproc) State=UNKNOWN
PartitionName=debug Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
END
  slurmctld
  slurmd
  for ((i = 0; i < 60; i += 1)); do
    [[ $(sinfo -h -o %T 2>/dev/null) == idle ]] && return
    sleep 0.5
  done
  echo "local_slurm.sh: the node does not come up; its logs are in $folder" >&2
  return 1
}

stop() {
  local daemon
  for daemon in slurmd slurmctld; do
    [[ -f $folder/$daemon.pid ]] && kill "$(cat "$folder/$daemon.pid")" || true
    for ((i = 0; i < 40; i += 1)); do  # it removes the file at its end
      [[ -f $folder/$daemon.pid ]] || break
      sleep 0.25
    done
  done
  [[ -f $folder/munged_is_ours ]] && kill "$(cat /run/munge/bdlm.pid)" || true
}

case $action in
  start) start ;;
  stop) stop ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
