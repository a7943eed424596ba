#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bdlm train over two hosts: network namespaces joined by a bridge, with links of a limited speed,
# and an mpirun that starts its daemons in them. The losses are those of one host, and a csbp group
# that crosses hosts is warned of, one inside a host is not.
#   test_hosts.sh BDLM         exit status 77: skipped, the reason is printed
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "${1:?usage: test_hosts.sh BDLM}")
export PATH=$PATH:/usr/sbin
skip() {
  echo "skipped: $1"
  exit 77
}
for tool in ip tc unshare hostname mpirun; do
  command -v "$tool" >/dev/null || skip "no $tool; apt-get install iproute2 openmpi-bin"
done
((EUID == 0)) || skip "making network namespaces needs root"

# Names of this process, so that two tests do not meet; links lie inside the namespaces.
id=bdlm$$
hosts=("${id}-0" "${id}-1") bridge=${id}-bridge
folder=$(mktemp -d)
finish() {
  local status=$? name
  for name in "${hosts[@]}" "$bridge"; do ip netns del "$name" 2>/dev/null || true; done
  rm -rf "$folder"
  exit "$status"
}
trap finish EXIT
ip netns add "$bridge" 2>"$folder/error" || skip "no network namespaces here: $(<"$folder/error")"

start_hosts() {  # rate of each link
  ip -n "$bridge" link add br0 type bridge || return
  ip -n "$bridge" link set br0 up
  local i
  for i in 0 1; do
    ip netns add "${hosts[i]}"
    ip -n "${hosts[i]}" link add eth0 type veth peer name "port$i" netns "$bridge" || return
    ip -n "$bridge" link set "port$i" master br0 up
    ip -n "${hosts[i]}" link set lo up
    ip -n "${hosts[i]}" link set eth0 up
    ip -n "${hosts[i]}" addr add "10.77.0.$((i + 1))/24" dev eth0
    tc -n "${hosts[i]}" qdisc add dev eth0 root tbf rate "$1" burst 1mb latency 100ms || return
    tc -n "$bridge" qdisc add dev "port$i" root tbf rate "$1" burst 1mb latency 100ms || return
  done
}
start_hosts 1gbit 2>"$folder/error" || skip "no links between namespaces: $(<"$folder/error")"

# On a host: with its network and a name of its own, since daemons of one name would share a folder.
cat >"$folder/on_host" <<END
#!/usr/bin/env bash
host=\$1
shift
exec ip netns exec "$id-\$host" unshare --uts bash -c 'hostname host\$0 && exec "\$@"' "\$host" "\$@"
END
# mpirun calls this as it would ssh: agent ADDRESS COMMAND...
cat >"$folder/agent" <<END
#!/usr/bin/env bash
address=\$1
shift
exec "$folder/on_host" \$((\${address##*.} - 1)) bash -c "\$*"
END
chmod +x "$folder/on_host" "$folder/agent"
"$folder/on_host" 0 true 2>"$folder/error" || skip "no hosts of their own names: $(<"$folder/error")"
printf '10.77.0.%d slots=2\n' 1 2 >"$folder/hostfile"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PMIX_MCA_gds=hash
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive OMPI_MCA_mpi_yield_when_idle=1
network=10.77.0.0/24
over_hosts() {  # two ranks a host, TCP in between
  timeout 120 "$folder/on_host" 0 mpirun --hostfile "$folder/hostfile" -n 4 \
    --map-by ppr:2:node --oversubscribe --bind-to none --mca plm_rsh_agent "$folder/agent" \
    --mca plm_rsh_no_tree_spawn 1 --mca orte_keep_fqdn_hostnames 1 --mca pml ob1 \
    --mca btl vader,tcp,self --mca btl_tcp_if_include $network --mca oob_tcp_if_include $network \
    -x OMP_NUM_THREADS -x OMP_WAIT_POLICY -x OMPI_MCA_mpi_yield_when_idle -x PMIX_MCA_gds "$@"
}

mkdir "$folder/bin" "$folder/work"
ln -s "$program" "$folder/bin/bdlm"
export PATH=$folder/bin:$PATH
cd "$folder/work"
"$here/../cli/setup.sh"
losses() { grep -o '"step":[0-9]*\|"loss":[-0-9.e]*' "$1/metrics.jsonl"; }
agree() {  # run folders: losses to 1e-9
  paste <(losses plain) <(losses "$1") | tr ':' ' ' | awk '
    $1 != $3 || ($2 - $4) ^ 2 > 1e-18 * $2 ^ 2 { print "FAILED: " $0; bad = 1 }
    END { if (NR < 6) { print "FAILED: " NR " values only"; bad = 1 } exit bad }'
}
fails() { echo "FAILED: $1"; cat "$2"; exit 1; }

bdlm train run.yaml --set run.folder=plain >plain.log 2>&1

over_hosts bdlm train run.yaml --set run.folder=inside --set parallel.csbp=2 >inside.log 2>&1 ||
  fails "the run of two csbp groups" inside.log
agree inside
grep -q 'placement of 4 ranks on 2 nodes' inside.log || fails "two hosts are not seen" inside.log
grep -q 'csbp 2: 2 groups, inside nodes' inside.log || fails "groups inside hosts" inside.log
grep -q 'data 2: 2 groups, across nodes' inside.log || fails "data across hosts" inside.log
grep -q ' cross nodes' inside.log && fails "a warning without a reason" inside.log
echo "ok: csbp groups inside hosts, losses as on one rank, no warning"

over_hosts bdlm train run.yaml --set run.folder=across --set parallel.csbp=4 >across.log 2>&1 ||
  fails "the run of one csbp group" across.log
agree across
(($(grep -c 'csbp groups, as ranks 0-3, cross nodes: .*parallel.csbp: 2 stays' across.log) == 1)) ||
  fails "not one warning" across.log
echo "ok: a csbp group across hosts, losses as on one rank, one warning"
