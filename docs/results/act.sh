#!/usr/bin/env bash
# What act.md keeps and no experiment measures: docs/results/act.sh OUT [selftest|refused|two_gpus ...]
# DOORBELL names the binary (default: cargo's release build). two_gpus needs two GPUs, so it runs only if it is named. The experiments
# are in measure.sh.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: act.sh OUT [selftest|raw|refused|two_gpus ...]}
shift
parts=${*:-selftest refused}
d=${DOORBELL:-$here/../../target/release/doorbell}
mkdir -p "$out"

xids() { dmesg 2>/dev/null | grep -c 'NVRM: Xid'; }
before=$(xids)
# A part that brings an Xid ends the run: its cause comes first.
part() {
  name=$1; shift
  case " $parts " in *" $name "*) ;; *) return ;; esac
  echo; echo "## $name: $*"
  timeout "${LIMIT:-400}" "$@"
  echo "exit status $?"
  if [ "$(xids)" != "$before" ]; then
    echo "An Xid in the kernel log:"; dmesg | grep 'NVRM: Xid' | tail -n 3
    exit 1
  fi
}

echo "## Machine"; "$d" --version; "$d" doctor --no-try
part selftest "$d" selftest --gpu real
cd "$here/../.." || exit 2
part refused cargo run --release -q -p machine --example refused
part two_gpus "$d" bench p2p --force -o "$out/two_gpus.json"
echo; echo "Xid in the kernel log: $(($(xids) - before)) new"
