#!/usr/bin/env bash
# What act.md keeps and no experiment measures: docs/results/act.sh OUT [selftest|refused|two_gpus ...]
# DOORBELL names the binary (default: cargo's release build). two_gpus needs two GPUs, so it runs only if it is named. The experiments
# are in measure.sh.
set -u
. "$(dirname "$0")/lab.sh"
out=${1:?usage: act.sh OUT [selftest|refused|two_gpus ...]}
shift
parts=${*:-selftest refused}
mkdir -p "$out"

part() {
  name=$1; shift
  want "$name" || return
  echo; echo "## $name: $*"
  timeout "${LIMIT:-400}" "$@"
  echo "exit status $?"
  if new_xid; then exit 1; fi
}

echo "## Machine"; "$d" --version; "$d" doctor --no-try
part selftest "$d" selftest --gpu real
cd "$here/../.." || exit 2
part refused cargo run --release -q -p machine --example refused
part two_gpus "$d" bench peer --variant matrix --force -o "$out/two_gpus"
echo; echo "Xid in the kernel log: $(($(xids) - before)) new"
