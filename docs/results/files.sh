#!/usr/bin/env bash
# Reading a file into GPU memory beside fio: docs/results/files.sh OUT FILE
#
# In each round fio, our bare ring (`files bare`) and `files read` read the whole file in turn, at the same block size and depth, with
# direct I/O, registered buffers and a registered file. The table has the median and the range of ROUNDS (7) rounds, and the ratio to
# fio of the same round. FILE is made of random bytes if it does not exist (SIZE, 4GiB). SHAPES are BLOCK:DEPTH pairs. GPU=soft reads
# into the software GPU, which has no rate: its row is left out, and what remains is this machine's drive. Where huge pages are free, fio
# gets them as well (row `fio, huge pages`): doorbell's slots lie on large pages by themselves. DOORBELL and FIO name the binaries.
set -eu
out=${1:?usage: files.sh OUT FILE}
file=${2:?usage: files.sh OUT FILE}
here=$(cd "$(dirname "$0")" && pwd)
d=${DOORBELL:-$here/../../target/release/doorbell}
fio=${FIO:-fio}
gpu=${GPU:-real}
rounds=${ROUNDS:-7}
shapes=${SHAPES:-"1MiB:16 256KiB:32 64KiB:64"}
mkdir -p "$out"
log=$out/files.jsonl
: >"$log"

if [ ! -e "$file" ]; then
  size=${SIZE:-4GiB}
  echo "making $file: $size of random bytes"
  head -c "${size%iB}" /dev/urandom >"$file.part"
  sync "$file.part"
  mv "$file.part" "$file"
fi
huge=$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages 2>/dev/null || echo 0)
command -v "$fio" >/dev/null || { echo "no fio here: the bare ring alone is the comparison"; fio=; }

# Where the kernel or a sandbox refuses io_uring, both go without it.
engine="--ioengine=io_uring --fixedbufs=1 --registerfiles=1"
if [ -n "$fio" ] && ! "$fio" --name=try --filename="$file" --rw=read --bs=4k --io_size=4k --direct=1 $engine >"$out/try.txt" 2>&1; then
  engine=--ioengine=libaio
  echo "fio has no io_uring here ($out/try.txt says why): it uses libaio"
fi

# shellcheck disable=SC2086 # the engine is several words
with_fio() { # NAME BLOCK DEPTH OPTIONS
  name=$1 block=$2 depth=$3
  shift 3
  "$fio" --name=read --filename="$file" --rw=read --bs="${block%iB}" --iodepth="$depth" --direct=1 $engine --norandommap=1 \
    --output-format=json "$@" |
    python3 -c 'import json,sys; r=json.load(sys.stdin)["jobs"][0]["read"]; print(json.dumps({"way":sys.argv[1],"block":sys.argv[2],"depth":int(sys.argv[3]),"bytes_per_second":r["bw_bytes"]}))' \
      "$name" "$block" "$depth" >>"$log"
}
ours() { # WAY BLOCK DEPTH COMMAND...
  name=$1 block=$2 depth=$3
  shift 3
  "$d" files "$@" "$file" --block "$block" --depth "$depth" --json |
    python3 -c 'import json,sys; r=json.load(sys.stdin); print(json.dumps({"way":sys.argv[1]+(", "+r["mode"] if "mode" in r else ""),"block":sys.argv[2],"depth":int(sys.argv[3]),"bytes_per_second":r.get("bytes_per_second"),"mode":r.get("mode"),"direct_io":r.get("direct_io"),"registered_buffers":r.get("registered_buffers")}))' \
      "$name" "$block" "$depth" >>"$log"
}

for shape in $shapes; do
  block=${shape%:*} depth=${shape#*:}
  bytes=$(($(numfmt --from=iec "${block%iB}") * depth))
  for _ in $(seq "$rounds"); do
    [ -z "$fio" ] || with_fio fio "$block" "$depth"
    [ -z "$fio" ] || [ $((huge * 2097152)) -lt $((bytes + 2097152)) ] || with_fio "fio, huge pages" "$block" "$depth" --iomem=mmaphuge
    ours bare "$block" "$depth" bare
    [ "$gpu" = soft ] || ours "delivered to gpu0" "$block" "$depth" read --gpu "$gpu"
    # NVIDIA's library, where it is installed. Its row has the measured mode: `cuFile, direct`, `cuFile, compatibility` or `cuFile, unknown`.
    [ "$gpu" = soft ] || ours cuFile "$block" "$depth" read --gpu "$gpu" --via cufile 2>/dev/null || true
  done
done

python3 - "$log" <<'PY'
import json, statistics, sys

rows = {}
for line in open(sys.argv[1]):
    run = json.loads(line)
    rows.setdefault((run["block"], run["depth"]), {}).setdefault(run["way"], []).append(run["bytes_per_second"] / 1e9)
print("| block | depth | way | GB/s, median | range | of fio, median of rounds |")
print("|---|---|---|---|---|---|")
for (block, depth), ways in rows.items():
    for way, rates in ways.items():
        fio = ways.get("fio", [])
        ratio = f"{statistics.median(a / b for a, b in zip(rates, fio)):.0%}" if fio and way != "fio" else ""
        print(f"| {block} | {depth} | {way} | {statistics.median(rates):.2f} | {min(rates):.2f} to {max(rates):.2f} | {ratio} |")
PY
