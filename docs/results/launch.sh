#!/usr/bin/env bash
# What docs/results/launch.md keeps: docs/results/launch.sh OUT [selftest shapes networks launches call copies chain examples faults ...]
#
# About seven minutes on an H200; each step has its limit and keeps what it has, and an Xid ends the run. DOORBELL names the binary (default: cargo's release build),
# PYTHON a python3 with torch, PREFIX where libdoorbell is installed (crates/gpu/libdoorbell/install.sh --prefix target/prefix) with the C examples launch and frame_loop
# and docs/results/launch/lanes.c built into it (its head says how), TURNS the library of docs/results/launch/turns.c, NETWORKS which of
# docs/results/graphs/networks.py, TIMES how much longer the experiments run (1).
set -u
. "$(dirname "$0")/lab.sh"
out=${1:?usage: launch.sh OUT [PART ...]}
shift
parts=${*:-selftest shapes launches chain networks examples}
prefix=${PREFIX:-$here/../../target/prefix}
python=${PYTHON:-python3}
times=${TIMES:-1}
export DOORBELL_LIB=${DOORBELL_LIB:-$prefix/lib/libdoorbell.so} PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=${PYTHONPATH:-$prefix/share/doorbell/python} LD_LIBRARY_PATH=$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$out" || exit 2

step() { # NAME SECONDS COMMAND...
  local name=$1 limit=$2 status
  shift 2
  timeout -k 5 -s INT "$limit" "$@" > "$out/$name.txt" 2> "$out/$name.err" < /dev/null
  status=$?
  echo "$name: exit status $status, $SECONDS s"
  if new_xid; then exit 1; fi
}

# One kernel of one thread first.
want selftest && step selftest 60 "$d" selftest --launches
want shapes && step shapes 90 "$d" sample graphs --launcher doorbell
if want networks; then
  for name in ${NETWORKS:-matmul triton branches lstm vit resnet50 gpt2}; do
    step "network-$name" 75 "$python" "$here/graphs/networks.py" "$name" --launcher doorbell --replays 20 ${TURNS:+--turns "$TURNS"}
  done
fi
if want launches; then
  step launches 90 "$d" bench setups --variant launches --set matrix.neighbour.count=0 --set run.duration=$((3 * times))s --force -o "$out/launches"
  step launches-beside $((60 + 60 * times)) "$d" bench setups --variant launches --set matrix.neighbour.count=1 --set run.duration=$((3 * times))s --force -o "$out/launches-beside"
fi
want call && step call 40 "$d" bench "$here/launch/call.toml" --force -o "$out/call"
if want copies; then
  if [ -n "${TURNS:-}" ]; then step nodes 60 "$python" "$here/launch/nodes.py" "$TURNS"; else echo "nodes: skipped, TURNS names no library of turns.c"; fi
  step pageable 90 "$python" "$here/launch/pageable.py"
fi
want chain && step chain $((30 + 30 * times)) "$d" bench chain --set run.duration=$((15 * times))s --force -o "$out/chain"
if want examples; then
  step launch-c 60 "$prefix/launch" 1000000
  step frame_loop 60 "$prefix/frame_loop" 10
fi
# Not by default: the page has nothing of these.
if want faults; then
  # Killed while it launches. The GPU must go on launching for the next program.
  "$prefix/lanes" 10000 > "$out/killed.txt" 2> "$out/killed.err" < /dev/null &
  killed=$!
  for _ in $(seq 200); do grep -q launch "$out/killed.txt" && break; sleep 0.1; done
  sleep 2
  if grep -q launch "$out/killed.txt" && kill -KILL "$killed"; then echo "killed: lanes, while it launched"; else echo "killed: lanes did not launch (see killed.err)"; fi
  wait "$killed" 2> /dev/null
  step selftest-after-kill 60 "$d" selftest --launches
  # Forks while it launches: no child may launch, and no launch of the parent's may be lost.
  step forks 90 "$prefix/lanes" 2000 1 1 200
fi
echo "Xid in the kernel log: 0 new; $SECONDS s"
