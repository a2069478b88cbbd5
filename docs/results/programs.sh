#!/usr/bin/env bash
# Large programs to their end, plain, under `record --locks` and under each policy: docs/results/programs.sh OUT [PROGRAM ...]
# What a program prints must be what it prints without. What is not installed is skipped, with the reason. DOORBELL names the
# binary, PYTHON a python3 with torch, MODES the ways, LIMIT the seconds that one may take.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: programs.sh OUT [PROGRAM ...]}
shift
d=${DOORBELL:-$here/../../target/release/doorbell}
modes=${MODES:-record ticket pi phase-fair boost pi,phase-fair}
limit=${LIMIT:-180}
programs=${*:-torch chromium firefox java node redis go git gdb}
files=$here/programs
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Sets `command` (the words to run) and leaves what it says comparable in `said`; or prints why not.
missing() {
  case $1 in
    torch)
      # (What is called python3 may be a script that starts it, which would then be what runs under doorbell.)
      python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)' 2>/dev/null) || { echo "no python3"; return; }
      "$python" -c 'import torch' 2>/dev/null || { echo "$python has no torch"; return; }
      command=("$python" "$files/train.py") ;;
    chromium)
      which chromium > /dev/null || { echo "chromium is not installed"; return; }
      # (A shell script that ends in exec.)
      browser=/usr/lib/chromium/chromium; [ -x $browser ] || browser=$(readlink -f "$(which chromium)")
      command=("$browser" --headless --no-sandbox --disable-gpu --no-first-run "--user-data-dir=$work/chromium" --virtual-time-budget=20000
        --dump-dom "file://$files/page.html") ;;
    firefox)
      browser=/usr/lib/firefox-esr/firefox-esr; [ -x $browser ] || { echo "firefox is not installed"; return; }
      command=("$browser" --headless --no-remote --profile "$work/firefox" --window-size 400,300 --screenshot "$work/page.png" "file://$files/page.html") ;;
    java)
      which java > /dev/null || { echo "java is not installed"; return; }
      command=(java -XX:ParallelGCThreads=4 "$files/Contend.java") ;;
    node)
      which node > /dev/null || { echo "node is not installed"; return; }
      command=(node "$files/workers.js") ;;
    redis)
      which redis-server redis-benchmark > /dev/null || { echo "redis is not installed"; return; }
      command=(redis-server --port 0 --save '' --appendonly no --io-threads 2 --unixsocket "$work/redis") ;;
    go)
      which go > /dev/null || { echo "go is not installed"; return; }
      [ -x "$work/go" ] || (cd "$files" && CGO_ENABLED=1 GOCACHE=$work/cache GOFLAGS=-mod=mod go build -o "$work/go" main.go) > "$out/go-build.txt" 2>&1 || { echo "go build failed"; return; }
      command=("$work/go") ;;
    git)
      which git > /dev/null || { echo "git is not installed"; return; }
      command=(git -C "$here" -c pack.threads=4 -c index.threads=4 -c grep.threads=4 grep -c -e fn --threads 4) ;;
    gdb)
      which gdb > /dev/null || { echo "gdb is not installed"; return; }
      command=(gdb -q -batch -nx -ex 'info line main' -ex 'info functions pthread_mutex' "$d") ;;
    *) echo "no program of that name"; return ;;
  esac
}

# One run; exit status in `status`, what it said in $work/said, seconds in `seconds`.
once() {
  local mode=$1 name=$2 before=()
  rm -rf "$work/chromium" "$work/firefox" "$work/redis" "$work/page.png"; mkdir -p "$work/firefox"
  case $mode in
    bare) ;;
    record) before=("$d" record --locks --tap off --quiet --force -o "$out/$name.doorbell" --) ;;
    *) before=("$d" run --lock-policy "$mode" --force -o "$out/$name-$mode.report" --) ;;
  esac
  local from; from=$(date +%s.%N)
  if [ "$name" = redis ]; then
    "${before[@]}" "${command[@]}" > "$work/server" 2>&1 &
    local server=$!
    for _ in $(seq 100); do [ -S "$work/redis" ] && break; sleep 0.1; done
    timeout "$limit" redis-benchmark -s "$work/redis" -n 50000 -c 50 -P 4 -t set,get,lpush,lpop --csv > "$work/load" 2> "$work/complaints"
    status=$?
    # What it did, not how fast.
    { cut -d, -f1 "$work/load" | tail -n +2; redis-cli -s "$work/redis" dbsize; } > "$work/said" 2>> "$work/complaints"
    redis-cli -s "$work/redis" shutdown nosave 2>> "$work/complaints"
    wait $server; local ended=$?; [ $status = 0 ] && status=$ended
  else
    timeout -k 5 "$limit" "${before[@]}" "${command[@]}" > "$work/said" 2> "$work/complaints" < /dev/null
    status=$?
    case $name in
      # The page's own text: what else a browser says (profiles, buses) changes from run to run.
      chromium) grep -o 'sum [-0-9]*' "$work/said" > "$work/only"; mv "$work/only" "$work/said" ;;
      firefox) { [ -s "$work/page.png" ] && file -b "$work/page.png" 2>/dev/null || wc -c < "$work/page.png"; } > "$work/said" 2>&1 ;;
      gdb) { grep -c . "$work/said"; grep 'pthread_mutex_lock' "$work/said" | head -n 3; } > "$work/only"; mv "$work/only" "$work/said" ;;
    esac
  fi
  seconds=$(awk -v a="$from" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
}

echo "| program | bare |$(for m in $modes; do printf ' %s |' "$m"; done) operations | lost |"
echo "|---|--:|$(for m in $modes; do printf -- '--:|'; done)--:|--:|"
failed=0
for name in $programs; do
  why=$(missing "$name"); [ -n "$why" ] && { echo "| $name | skipped: $why |"; continue; }
  missing "$name" > /dev/null
  once bare "$name"
  cp "$work/said" "$out/$name-bare.txt"
  [ $status = 0 ] || { echo "| $name | skipped: bare it ended with $status: $(tail -c 200 "$work/complaints" | tr '\n|' '  ') |"; continue; }
  row="| $name | $seconds s |"
  operations=; lost=
  for mode in $modes; do
    once "$mode" "$name"
    cp "$work/said" "$out/$name-$mode.txt"; cp "$work/complaints" "$out/$name-$mode.err"
    verdict=same
    cmp -s "$out/$name-bare.txt" "$work/said" || verdict=differs
    [ $status = 0 ] || verdict="status $status"
    [ "$verdict" = same ] || failed=1
    row="$row $verdict, $seconds s |"
    if [ "$mode" = record ]; then
      "$d" show --locks --json "$out/$name.doorbell" > "$out/$name.json" 2> "$out/$name.show" || failed=1
      read -r operations lost < <(python3 -c 'import json,sys; j=json.load(open(sys.argv[1])); print(sum(j["operations"].values()), j["lost_events"])' "$out/$name.json" 2>/dev/null || echo "? ?")
      rm -f "$out/$name.doorbell"
    fi
  done
  echo "$row $operations | $lost |"
done
exit $failed
