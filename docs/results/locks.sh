#!/usr/bin/env bash
# What protocols.md keeps and no experiment measures: docs/results/locks.sh OUT [costs|protocols|traced|models ...]
# costs and protocols need no GPU. models needs python3 with PyTorch, timm and transformers (PYTHON names it).
# DOORBELL names the binary (default: cargo's release build), MODELS the models (DEVICE=cpu: that they run, no more), N the inferences
# whose operations are counted, JOBS how many of their recordings run at once. The experiments are in measure.sh.
set -u
. "$(dirname "$0")/lab.sh"
out=${1:?usage: locks.sh OUT [costs|protocols|traced|models ...]}
shift
parts=${*:-costs protocols traced models}
python=${PYTHON:-python3}
n=${N:-50}
jobs=${JOBS:-6}
device=${DEVICE:-cuda}
command -v "$d" >/dev/null || { echo "locks.sh: no doorbell at $d (cargo build --release, or DOORBELL=...)" >&2; exit 2; }
mkdir -p "$out"

part() {
  name=$1; shift
  echo; echo "## $name: doorbell $*"
  timeout "${LIMIT:-590}" "$d" "$@"
  echo "exit status $?"
  if new_xid; then exit 1; fi
}

echo "## Machine"; "$d" --version; "$d" doctor --no-try
want costs && { "$d" selfbench locks --json > "$out/costs.json"; part costs selfbench locks; }
want protocols && for part in locks blocking; do part "protocols, $part" bench inversion --variant "$part" --force -o "$out/protocols-$part"; done

# Which locks a call waited for, and who held them: experiments whose process is recorded. NAME, then the experiment and its options.
traced() {
  local cell=$1; shift
  part "traced $cell" bench "$@" --set matrix.policy=traced --set compare.baseline= --set run.rounds=1 --set run.repeats=1 \
    --set run.duration=2s --force -o "$out/traced-$cell"
  tape="$out/traced-$cell/traced-00.doorbell"
  "$d" show --locks --limit 12 "$tape" > "$out/traced-$cell.txt" 2>&1
  "$d" show --calls --limit 6 "$tape" >> "$out/traced-$cell.txt" 2>&1
  head -n 90 "$out/traced-$cell.txt"
  ls -l "$tape"
  rm -f "$tape"
}
if want traced; then
  traced copy crowds --set 'matrix.copying.route=host->cuda->gpu0' --set matrix.copying.bytes=4MiB --set matrix.copying.count=64 \
    --set matrix.launching.count=0
  traced both crowds --set 'matrix.copying.route=host->cuda->gpu0' --set matrix.copying.bytes=4MiB --set matrix.copying.count=100 \
    --set matrix.launching.count=100
  traced setup setting-up --set matrix.neighbour.what=launch --set matrix.neighbour.count=32
  traced inversion inversion
  traced allocation "$here/setups/host-allocation.toml" --set matrix.neighbour.rate=
fi

if want models; then
  models=${MODELS:-$("$python" "$here/locks/models.py" --list)} || exit 2
  tape=$(mktemp -d)
  trap 'rm -rf "$tape"' EXIT
  m="$out/models"; mkdir -p "$m"
  # One model that runs, before the others are waited for: what is missing is said at once.
  echo; echo "## models: times, nothing recorded"
  for model in $models; do
    timeout 200 "$python" "$here/locks/models.py" "$model" --device "$device" -n "$((n * 4))" > "$m/$model-times.json" 2>"$m/$model-times.err"
    rc=$?
    echo "$model: exit status $rc"
    if [ $rc != 0 ]; then
      tail -n 3 "$m/$model-times.err"
      [ $rc = 77 ] && exit 77
    fi
  done
  ways="eager graph"; [ "$device" = cpu ] && ways=eager
  # One recording: MODEL N WAY(eager|graph)
  record() {
    name="$1-$3-$2"
    graph=; [ "$3" = graph ] && graph=--graph
    # shellcheck disable=SC2086
    timeout 250 "$d" record -q --locks --on-full wait --force --ring 64MiB -o "$tape/$name.doorbell" -- \
      "$python" "$here/locks/models.py" "$1" --device "$device" --plain "$2" $graph > "$m/$name.out" 2>"$m/$name.err"
    echo "$name: exit status $?, tape $(du -m "$tape/$name.doorbell" 2>/dev/null | cut -f1) MiB"
    "$d" show --locks --json --limit 20 "$tape/$name.doorbell" > "$m/$name-locks.json" 2>>"$m/$name.err"
    "$d" show --calls --json "$tape/$name.doorbell" > "$m/$name-calls.json" 2>>"$m/$name.err"
    "$d" show --summary --json "$tape/$name.doorbell" > "$m/$name-summary.json" 2>>"$m/$name.err"
    [ "${KEEP:-}" ] || rm -f "$tape/$name.doorbell"
  }
  echo; echo "## models: recorded, $n and $((2 * n)) inferences"
  # Counts do not depend on what runs beside them; the mean latencies of calls do, and say so.
  for model in $models; do
    for way in $ways; do
      for count in "$n" $((2 * n)); do
        record "$model" "$count" "$way" &
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
      done
    done
  done
  wait
  echo; "$python" "$here/locks/tables.py" "$m" "$n" | tee "$out/models.md"
fi
echo; echo "Xid in the kernel log: $(($(xids) - before)) new"
