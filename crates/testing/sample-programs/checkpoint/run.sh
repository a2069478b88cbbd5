#!/bin/sh
# A program that is checkpointed and restored goes on under every tap, and its second half is recorded or named as lost.
# Needs a GPU, nvcc, driver 570 or newer. DOORBELL: the command to test. Writes *.doorbell and *.json to the current directory.
HERE=$(cd "$(dirname "$0")" && pwd)
D=${DOORBELL:-doorbell}
nvcc -O2 -arch=native -o p "$HERE/p.cu" -lcuda || exit 2
bad=0
try() { # NAME COMMAND...
    name=$1
    shift
    echo "-- $name"
    if timeout 120 "$@" </dev/null; then echo "   goes on"; else echo "   FAILED: $name"; bad=1; fi
}
say() { # FILE
    $D show --summary --json "$1" >"$1.json" 2>&1
    python3 - "$1" <<'P'
import json, sys
s = json.load(open(sys.argv[1] + ".json"))
print("   launches", s["launches"], "entries", s["entries"], "lost", s["lost"], "unknown tokens", s["lost_detail"]["strangers"],
      "complete", s["complete"], s["incomplete_because"], "trouble", s["trouble"])
if s["complete"] and s["launches"] < 4000:
    sys.exit("   FAILED: complete, and launches are missing")
P
    [ $? = 0 ] || bad=1
    # What libcuda's thread did: the driver calls of each thread, and the tokens that were reported.
    $D show --driver-calls "$1" >"$1.calls.txt" 2>&1
    $D show --channels "$1" >"$1.channels.txt" 2>&1
}
try "bare, another process" python3 "$HERE/drive.py" ./p
try "bare, itself" ./p self
for tap in auto trap off; do
    for more in --calls --gpu-times; do
        [ "$tap $more" = "off --gpu-times" ] && continue
        f=$tap$more.doorbell
        try "--tap $tap $more, another process" python3 "$HERE/drive.py" "$D" record --tap $tap $more -q --force -o "$f" -- ./p
        say "$f"
    done
done
try "--tap auto, twice" python3 "$HERE/drive.py" --again "$D" record --tap auto -q --force -o again.doorbell -- ./p
say again.doorbell
try "--tap auto, itself" "$D" record --tap auto -q --force -o self.doorbell -- ./p self
say self.doorbell
try "run, another process" python3 "$HERE/drive.py" "$D" run --lock-policy pi -- ./p
if command -v cuda-checkpoint >/dev/null; then
    echo "-- --tap auto, cuda-checkpoint --toggle"
    mkfifo go 2>/dev/null
    (timeout 60 "$D" record --tap auto -q --force -o toggle.doorbell -- ./p <go) & 
    exec 9>go
    sleep 8
    pid=$(pgrep -n -x p)
    cuda-checkpoint --toggle --pid "$pid" && cuda-checkpoint --toggle --pid "$pid"
    echo x >&9
    exec 9>&-
    wait $! && say toggle.doorbell || { echo "   FAILED: toggle"; bad=1; }
    rm -f go
fi
[ $bad = 0 ] && echo "ALL GO ON" || echo "SOME FAILED"
exit $bad
