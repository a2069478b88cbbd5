#!/usr/bin/env bash
# kill -9 on a GPU, against a count that the program keeps itself: docs/results/kill.sh OUT [ROUNDS]
# A CUDA program (kill.cu, built by nvcc here) counts each launch in a file before it is made and after. It is killed at a random
# moment, under each tap, alone and with PROCESSES (3) of them started by a shell. The tape must hold at least what was done and at most
# what was begun, of each process. DOORBELL names the binary.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: kill.sh OUT [ROUNDS]}
rounds=${2:-3}
d=${DOORBELL:-$here/../../target/release/doorbell}
processes=${PROCESSES:-3}
mkdir -p "$out" || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvcc=$(command -v nvcc || ls /usr/local/cuda*/bin/nvcc 2> /dev/null | head -n 1)
[ -n "$nvcc" ] || { echo "skipped: no nvcc"; exit 77; }
"$nvcc" -O1 -o "$work/kill" "$here/kill.cu" || exit 2
"$work/kill" "$work/none" 0 10 > "$work/said"; rc=$?
[ $rc = 77 ] && { echo "skipped: no GPU"; exit 77; }
[ "$(cat "$work/said")" = 10 ] || { echo "the program itself fails ($rc)"; exit 2; }

cat > "$work/check.py" <<'P'
import json, struct, sys
counts, summary, slots = sys.argv[1], json.load(open(sys.argv[2])), int(sys.argv[3])
raw = open(counts, "rb").read()
slot = [struct.unpack_from("<3Q", raw, 64 * n) for n in range(slots)]
done, begun = sum(s[2] for s in slot), sum(s[1] for s in slot)
right = done <= summary["launches"] <= begun and summary["lost"] == 0
by = {p["pid"]: p for p in summary.get("processes") or []}
each = []
if slots > 1:
    for pid, b, e in slot:
        on = by.get(pid, {}).get("launches")
        right = right and on is not None and e <= on <= b
        each.append(f"{e}..{b}: {on}")
print(f"{done} | {summary['launches']} | {begun} | {summary['lost']} | {'yes' if right else 'NO'} {', '.join(each)}")
sys.exit(not right)
P
# Slots whose launches have begun.
begun() { python3 -c 'import struct,sys; r=open(sys.argv[1],"rb").read(); print(sum(struct.unpack_from("<3Q",r,64*n)[2]>1000 for n in range(int(sys.argv[2]))))' "$1" "$2" 2> /dev/null || echo 0; }
pids() { python3 -c 'import struct,sys; r=open(sys.argv[1],"rb").read(); print(*[struct.unpack_from("<3Q",r,64*n)[0] for n in range(int(sys.argv[2]))])' "$1" "$2"; }

failed=0
echo "| tap | processes | done | on the tape | begun | lost | between |"
echo "|---|--:|--:|--:|--:|--:|---|"
for tap in trap patch; do
  for n in 1 "$processes"; do
    for round in $(seq "$rounds"); do
      counts=$work/counts-$tap-$n-$round tape=$work/$tap-$n-$round.doorbell
      if [ "$n" = 1 ]; then program=("$work/kill" "$counts" 0)
      else
        script=; for k in $(seq 0 $((n - 1))); do script="$script '$work/kill' '$counts' $k & "; done
        program=(sh -c "$script wait")
      fi
      "$d" record -q --tap $tap --on-full wait -o "$tape" -- "${program[@]}" > /dev/null 2> "$out/$tap-$n-$round.err" &
      recorder=$!
      for _ in $(seq 600); do [ "$(begun "$counts" "$n")" = "$n" ] && break; sleep 0.1; done
      sleep "$(awk -v s="$RANDOM" 'BEGIN { printf "%.3f", 0.1 + s / 32768 }')"
      # shellcheck disable=SC2046
      kill -9 $(pids "$counts" "$n"); wait $recorder
      "$d" show --summary --json "$tape" > "$out/$tap-$n-$round.json" 2>> "$out/$tap-$n-$round.err"
      printf '| %s | %s | ' $tap "$n"
      python3 "$work/check.py" "$counts" "$out/$tap-$n-$round.json" "$n" || failed=1
      rm -f "$tape"
    done
  done
done
exit $failed
