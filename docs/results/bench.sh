#!/usr/bin/env bash
# Measures what the pages here keep: docs/results/bench.sh OUT [NAME ...]
#
# Each NAME is a shipped experiment, or a second run of one with other options (worst-policies, setups100), and becomes a folder
# OUT/NAME and a table OUT/NAME.txt. Without names: about 22 minutes on an H200. setups-modules takes 145 s for its two stages: a
# hundred threads load a module each before one ends. DOORBELL names the binary (default: cargo's release build), LIMIT the seconds after which one is
# stopped as by Ctrl-C: what it has finished is kept then.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: bench.sh OUT [NAME ...]}
shift
d=${DOORBELL:-$here/../../target/release/doorbell}
mkdir -p "$out"

# Where a run is shorter than the shipped file says, the reason is the time that this takes altogether.
options() {
  case $1 in
    small | eight | placement) echo --set run.duration=30s ;;
    submit) echo --set run.duration=20s ;;
    crossover) echo --set run.duration=5s ;;
    bandwidth | alone) echo --set run.duration=20s ;;
    chunks) echo --set run.duration=2s ;;
    paced) echo --set run.duration=10s ;;
    worst) echo --set matrix.crowd.count=0,64 --set run.duration=45s ;;
    worst-policies) echo --set matrix.policy=stock,pi,ticket,phase-fair,guard --set matrix.crowd.count=64 --set run.duration=12s ;;
    contention) echo --set run.duration=1s --set run.repeats=2 ;;
    crowds) echo --set run.duration=1s --set matrix.copying.count=64 ;;
    setting-up) echo --set run.duration=1s --set matrix.policy=stock,phase-fair ;;
    inversion) echo --set run.duration=10s --set run.repeats=2 --set matrix.policy=stock,pi,guard,phase-fair,ticket ;;
    setups) echo --set run.duration=1500ms --set matrix.policy=stock,ticket+phase-fair --set matrix.neighbour.count=0,1,10 ;;
    setups100) echo --set run.duration=1500ms --set matrix.policy=stock --set matrix.neighbour.count=100 ;;
    setups-modules) echo --set run.duration=1s --set matrix.policy=stock --set matrix.neighbour.count=100 --set 'matrix.neighbour.what=host[pageable]->cuda[sync]->gpu0,module(400)' ;;
    setups-ten) echo --set run.duration=1s --set matrix.policy=phase-fair,pi+phase-fair --set matrix.neighbour.count=10 ;;
    setups-hundred) echo --set run.duration=1s --set matrix.policy=ticket+phase-fair --set matrix.neighbour.count=100 --set 'matrix.neighbour.what=stream,malloc,hostalloc,hostalloc(touched),hostregister' ;;
    setting-up-policies) echo --set run.duration=700ms --set matrix.policy=guard,pi,ticket --set matrix.neighbour.count=0,1,8,32 --set compare.baseline=pi ;;
  esac
}

for name in ${*:-smoke small submit eight placement crossover bandwidth alone paced chunks worst worst-policies contention crowds setting-up inversion setups beside}; do
  experiment=${name%-policies}
  experiment=${experiment%100}
  experiment=${experiment%-modules}
  experiment=${experiment%-ten}
  experiment=${experiment%-hundred}
  # shellcheck disable=SC2046
  timeout -k 60 -s INT "${LIMIT:-600}" "$d" bench "$experiment" $(options "$name") --force -o "$out/$name" > "$out/$name.txt" 2> "$out/$name.err"
  echo "$name: exit status $?"
done
