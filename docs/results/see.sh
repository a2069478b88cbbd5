#!/usr/bin/env bash
# Rebuilds the figures of see.md on a machine with an NVIDIA GPU: docs/results/see.sh OUT [same|kill|cost|fixtures ...]
# Needs python3 with PyTorch for the transformer. DOORBELL names the binary (default: cargo's release build).
set -u
. "$(dirname "$0")/lab.sh"
out=${1:?usage: see.sh OUT [same|kill|cost|fixtures ...]}
shift
parts=${*:-same kill cost}
rounds=${ROUNDS:-20}
torch_rounds=${TORCH_ROUNDS:-6}
mkdir -p "$out"
tape=$(mktemp -d)
trap 'rm -rf "$tape"' EXIT

field() { python3 -c 'import json,sys
d=json.load(open(sys.argv[1]))
for k in sys.argv[2:]:
    v=d
    for p in k.split("."): v=v[p] if isinstance(v,dict) and p in v else "?"
    print(v,end=" ")' "$@"; }

echo "## Machine"; "$d" --version
"$d" doctor --json > "$out/doctor.json"
"$d" doctor | sed 's/^/    /'

# one program: bare, under trap, under patch; the same last line, and nothing lost
thrice() {
  name=$1; shift
  want=
  for tap in bare trap patch; do
    if [ $tap = bare ]; then
      timeout 200 "$@" > "$out/$name-$tap.txt" 2>"$out/$name-$tap.err"; rc=$?
      said="- - - - - -"
    else
      timeout 200 "$d" record -q --force --tap $tap -o "$tape/$name-$tap.doorbell" -- "$@" > "$out/$name-$tap.txt" 2>"$out/$name-$tap.err"; rc=$?
      "$d" show --summary --json "$tape/$name-$tap.doorbell" > "$out/$name-$tap.json"
      said=$(field "$out/$name-$tap.json" submissions entries lost launches copies.copy_engine copies.inline)
    fi
    last=$(tail -n 1 "$out/$name-$tap.txt")
    [ $tap = bare ] && want=$last
    same=no; [ "$last" = "$want" ] && [ $rc = 0 ] && same=yes
    # shellcheck disable=SC2086
    printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$name" $tap $said "$same"
  done
}

if want same; then
echo; echo "## The same results bare, under trap and under patch"
echo "| program | tap | submissions | entries | lost | launches | copy engine | inline | same result |"
echo "|---|---|--:|--:|--:|--:|--:|--:|---|"
for s in copies launches graphs threads spin channels; do
  thrice $s "$d" sample $s --gpu real
done
thrice transformer python3 "$here/transformer.py"
thrice transformer-graph python3 "$here/transformer.py" --graph

echo; echo "## Launches: the tape against PyTorch's profiler (a run of its own)"
for g in "" --graph; do
  name=transformer${g:+-graph}
  # shellcheck disable=SC2086
  timeout 200 python3 "$here/transformer.py" --profile $g 2>/dev/null | head -n 1 > "$out/$name-profiler.json"
  python3 - "$out/$name-profiler.json" "$out/$name-patch.json" "$name" <<'P'
import json, sys
p, t, name = json.load(open(sys.argv[1])), json.load(open(sys.argv[2])), sys.argv[3]
calls = {k: v for k, v in p["calls"].items() if "Graph" not in k}
print(f"- {name}: profiler: {sum(calls.values())} launch calls {calls}, {p['calls'].get('cudaGraphLaunch', 0)} graph launches; on the device {p['device']}")
print(f"  tape: {t['launches']} launches, {t['launch_detail']['again']} graph roots launched again; "
      f"launch calls + device-to-device copies = {sum(calls.values()) + p['device'].get('memcpy DtoD', 0)}")
P
done

echo; echo "## A 64 MiB copy, decoded"
"$d" show --copies --json "$tape/copies-patch.doorbell" > "$out/copies.json" 2>/dev/null
"$d" show --submissions "$tape/copies-patch.doorbell" 2>/dev/null | grep -B 7 -A 6 'LINE_LENGTH_IN.*4000000' | head -n 14 | sed 's/^/    /'

fi
if want kill; then
echo; echo "## kill -9 in a launch storm"
echo "| tap | doorbells | entries | lost | end |"
echo "|---|--:|--:|--:|---|"
for tap in trap patch; do
  "$d" record -q --force --tap $tap -o "$tape/storm.doorbell" -- "$d" sample storm --gpu real > "$out/storm.txt" 2>&1 &
  pid=$!
  for _ in $(seq 100); do grep -q launching "$out/storm.txt" && break; sleep 0.1; done
  sleep 1; pkill -9 -P $pid; wait $pid
  "$d" show --summary --json "$tape/storm.doorbell" > "$out/storm-$tap.json"
  echo "| $tap | $(field "$out/storm-$tap.json" submissions) | $(field "$out/storm-$tap.json" entries) | $(field "$out/storm-$tap.json" lost) | $(field "$out/storm-$tap.json" end.how) |"
done

fi
if want cost; then
echo; echo "## What a doorbell costs"
"$d" selfbench tap --rounds "$rounds" --cpu 5 --force -o "$out/selfbench.json" | sed 's/^/    /'
"$d" selfbench tap --no-trap --rounds "$torch_rounds" -- python3 "$here/transformer.py" --steps 100 | sed 's/^/    /'
"$d" selfbench tap --no-trap --rounds "$torch_rounds" -- python3 "$here/transformer.py" --steps 300 --graph | sed 's/^/    /'
fi
echo; echo "Xid in the kernel log: $(dmesg 2>/dev/null | grep -ci 'xid')"
if want fixtures; then
  "$d" record -q --force --no-data --no-args -o "$out/copies.doorbell" -- "$d" sample copies --gpu real >/dev/null 2>&1
  "$d" record -q --force --no-data --no-args -o "$out/launches.doorbell" -- "$d" sample launches graphs >/dev/null 2>&1
  ls -l "$out"/*.doorbell
fi
