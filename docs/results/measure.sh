#!/usr/bin/env bash
# Measures everything that the pages under docs/results show, about twelve minutes on one GPU:
#
#     docs/results/measure.sh OUT                                          # then: docs/results/fill.sh OUT
#     docs/results/measure.sh OUT --gpu soft --set run.duration=300ms      # whether it works; no figures for a page
#
# OUT/NAME is the run, OUT/NAME.json.gz its data file, OUT/data.tar.gz all data files. What follows OUT goes to each `doorbell bench`.
# DOORBELL names the program, built from a clean tree.
set -uo pipefail
out=${1:?usage: docs/results/measure.sh OUT [OPTIONS OF doorbell bench]}
shift
more=("$@")
doorbell=${DOORBELL:-doorbell}
mkdir -p "$out"
failed=0

digest() {
  "$doorbell" report "$out/$1" --digest "$out/$1.json.gz" --force "${@:2}" || { echo "$1: no data file" | tee -a "$out/measure.txt"; failed=1; }
}

said() {
  echo "$1: status $2, $((SECONDS - began)) s of $SECONDS" | tee -a "$out/measure.txt"
  # 1 is a bound of the experiment that does not hold: its figures are figures.
  [ "$2" -le 1 ] || failed=1
}

# NAME[:PARTS] "EXPERIMENT [--variant NAME]" OPTIONS; parts of a sample other than the one that each subject observes
bench() {
  local name=${1%%:*} parts=${1#*:} began=$SECONDS
  [ "$parts" != "$1" ] || parts=
  # shellcheck disable=SC2086
  "$doorbell" bench $2 "${@:3}" "${more[@]}" -o "$out/$name" --force >"$out/$name.txt" 2>&1
  said "$name" $?
  digest "$name" ${parts:+--parts "$parts"}
}

# What a submission costs, and a copy in each form.
bench submit "small --variant submit" --set run.duration=12s
bench small small --set run.duration=40s
bench sizes crossover --set matrix.bytes=8B,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,16MiB,64MiB --set run.duration=4s
bench scattered "bandwidth --variant scattered" --set run.duration=6s

# While others use the GPU, and while others hold CUDA's locks.
bench worst worst --set run.duration=25s
bench policies contention --set matrix.policy=stock,pi,ticket,phase-fair,guard --set matrix.copying.count=0,64 \
  --set matrix.copying.bytes=4MiB --set matrix.launching.count=64 --set run.duration=2s --set run.repeats=2
bench starved "setups --variant starved" --set matrix.policy=stock,phase-fair,guard --set matrix.neighbour.count=0,8,32 \
  --set matrix.neighbour.what=launch --set run.rounds=10 --set run.duration=2s
bench setups setups --set matrix.policy=stock,ticket+phase-fair --set matrix.neighbour.count=0,1 --set run.rounds=10 --set run.duration=2s \
  --set 'matrix.neighbour.what=malloc,hostalloc,hostregister,module(400),stream,instantiate(2000)'

# Launches, chains of copies and a launch.
bench launches:done,submit "setups --variant launches" --set matrix.neighbour.count=0 --set run.rounds=20 --set run.duration=20s
bench chain chain --set run.duration=40s

# What recording costs: the same bare and recorded.
bench budget:done,submit budget --set run.duration=20s

# The link: from the folder of the run, the rows of pcie.md.
began=$SECONDS
"$doorbell" bench bandwidth --variant link "${more[@]}" -o "$out/link" --force >"$out/link.txt" 2>&1
said link $?
"$(dirname "$0")/link.py" "$out/link" "$out" || { echo "link: no data file" | tee -a "$out/measure.txt"; failed=1; }

tar -C "$out" -czf "$out/data.tar.gz" measure.txt $(cd "$out" && ls ./*.json.gz)
ls -l "$out"/*.json.gz "$out/data.tar.gz"
exit $failed
