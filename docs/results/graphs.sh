#!/usr/bin/env bash
# Records CUDA graphs of every shape and of PyTorch, and says which are understood: docs/results/graphs.sh OUT [shapes|torch ...]
#
# Under four minutes on an H200: each step has its limit, and none begins when BUDGET seconds (230) are over. What is finished is kept: recordings
# (with data, so that `doorbell show --graphs` knows parameters), NAME.graphs.json, NAME.launches.json, table.md. DOORBELL names the binary (default:
# cargo's release build), PYTHON a python3 with torch, NETWORKS which of docs/results/graphs/networks.py, RECORD more options of `record`.
set -u
. "$(dirname "$0")/lab.sh"
out=${1:?usage: graphs.sh OUT [shapes|torch ...]}
shift
parts=${*:-shapes torch}
budget=${BUDGET:-230}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
"$d" sample graphs --list --json > "$out/shapes.json" || exit 2
SECONDS=0

# Records a program under a name, for so many seconds at most, and looks at the recording. An Xid ends the run.
record() {
  local name=$1 limit=$2 status
  shift 2
  [ "$limit" -lt $((budget - SECONDS)) ] || limit=$((budget - SECONDS))
  if [ "$limit" -lt 5 ]; then echo "$name: no time left"; return 1; fi
  # shellcheck disable=SC2086
  timeout -k 5 "$limit" "$d" record -q --force --ring 64MiB --on-full wait ${RECORD:-} -o "$out/$name.doorbell" -- "$@" \
    > "$out/$name.txt" 2> "$out/$name.err" < /dev/null
  status=$?
  for view in graphs launches; do
    timeout 20 "$d" show "$out/$name.doorbell" --$view --json > "$out/$name.$view.json" 2> "$out/$name.$view.txt"
  done
  echo "$name: exit status $status, $SECONDS s"
  if new_xid; then finish; fi
  return 0
}

finish() {
  python3 "$here/graphs/table.py" "$out" > "$out/table.md" 2> "$out/table.err" || cat "$out/table.err"
  echo; cat "$out/table.md"
  echo; echo "Xid in the kernel log: $(($(xids) - before)) new; $SECONDS s"
  [ "$(xids)" = "$before" ]
  exit
}

echo "## Machine"; "$d" --version; timeout 20 "$d" doctor --no-try
echo
if want shapes; then
  record shapes 60 "$d" sample graphs
  # A context that one shape broke takes those behind it along: they run alone, once.
  while read -r name; do
    record "shapes-$name" 10 "$d" sample graphs --only "$name" || break
  done < <(sed -n 's/^shape [0-9]*, \([^:]*\):.*/\1/p' "$out/shapes.err")
fi
if want torch; then
  for name in ${NETWORKS:-$(python3 "$here/graphs/networks.py" --list)}; do
    record "torch-$name" 45 "${PYTHON:-python3}" "$here/graphs/networks.py" "$name" || break
  done
fi
finish
