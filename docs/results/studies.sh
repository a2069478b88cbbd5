#!/usr/bin/env bash
# The nine studies: docs/results/studies.sh OUT [NAME ...]
#
# Each becomes a folder OUT/NAME and a table OUT/NAME.txt. About seven minutes on an H200, shortened as below; with FULL=1 as the files say (about 15 minutes). hackbench (rt-tests)
# has to be on the PATH. DOORBELL names the binary (default: cargo's release build), LIMIT the seconds after which one is stopped as by Ctrl-C: it keeps what it has finished.
set -u
. "$(dirname "$0")/lab.sh"
out=${1:?usage: studies.sh OUT [NAME ...]}
shift
mkdir -p "$out" || exit 2

options() {
  [ -z "${FULL:-}" ] || return
  case $1 in
    budget) echo --set run.duration=13s ;;
    traffic) echo --set run.duration=5s ;;
    graphs) echo --set run.duration=17s ;;
    gpudirect) echo --set run.duration=25s ;;
    thresholds) echo --set run.duration=20s ;;
    chunks) echo --set run.duration=1500ms --set run.rounds=5 ;;
    pipeline) echo --set run.duration=2s ;;
    interference) echo --set run.duration=2s ;;
    seed-2013) echo --set run.duration=300ms --set matrix.bytes=16B,4KiB,64KiB,16MiB ;;
  esac
}

for name in ${*:-budget traffic graphs gpudirect thresholds chunks pipeline interference seed-2013}; do
  what=$name
  case $name in
    gpudirect) what="device --variant gpudirect" ;;
    chunks | interference) what="worst --variant $name" ;;
    thresholds) what="crossover --variant $name" ;;
  esac
  # shellcheck disable=SC2046,SC2086
  timeout -k 60 -s INT "${LIMIT:-300}" "$d" bench $what $(options "$name") --force -o "$out/$name" > "$out/$name.txt" 2> "$out/$name.err"
  echo "$name: exit status $?, $SECONDS s"
done
