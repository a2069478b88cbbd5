#!/usr/bin/env bash
# Rebuilds the figures of act.md on a machine with an NVIDIA GPU: docs/results/act.sh OUT [selftest|small|eight|submit|places|sizes|bandwidth|raw|worst|beside ...]
# DOORBELL names the binary (default: cargo's release build), CPU the one to measure on, BESIDE the seconds of `beside`.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: act.sh OUT [selftest|small|eight|submit|places|sizes|bandwidth|raw|worst|beside ...]}
shift
parts=${*:-selftest small eight submit places sizes bandwidth raw worst beside}
d=${DOORBELL:-$here/../../target/release/doorbell}
last=$(($(nproc) - 1))
cpu=${CPU:-$last}
mkdir -p "$out"

xids() { dmesg 2>/dev/null | grep -c 'NVRM: Xid'; }
before=$(xids)
# A part that brings an Xid ends the run: its cause comes first.
part() {
  name=$1; shift
  case " $parts " in *" $name "*) ;; *) return ;; esac
  echo; echo "## $name: doorbell $*"
  timeout "${LIMIT:-400}" "$d" "$@"
  echo "exit status $?"
  if [ "$(xids)" != "$before" ]; then
    echo "An Xid in the kernel log:"; dmesg | grep 'NVRM: Xid' | tail -n 3
    exit 1
  fi
}

echo "## Machine"; "$d" --version; "$d" doctor --no-try
part selftest selftest --gpu real
part small bench --routes 'host->cuda->gpu0,host->cudart->gpu0,host->inline->gpu0,host->inline[group=cuda]->gpu0,host->ce2->gpu0,host->ce3->gpu0,host->ce4->gpu0,host->message->gpu0,host->bar1[answered]->gpu0,host->bar1[flush]->gpu0,host->inline[armed]->gpu0,host->ce3[armed]->gpu0,gpu0->cuda->host,gpu0->cudart->host,gpu0->ce2->host,gpu0->ce3->host,gpu0->ce4->host' \
  --sizes 8B --samples 10000 --cpu "$cpu" --fifo --force -o "$out/small.json"
# Eight bytes in every way that there is to say that they are there.
eight='host->cuda->gpu0,host->cudart->gpu0'
for o in '' '[release=host]' '[release=engine]' '[release=word]' '[release=execute]' '[armed]' '[armed,release=engine]' '[armed,release=word]' \
  '[group=cuda]' '[group=cuda,release=engine]'; do
  eight="$eight,host->inline$o->gpu0"
done
for o in '' '[folded]' '[release=word]' '[release=local]' '[folded,release=word]' '[folded,release=local]' '[armed]' '[armed,release=word]' \
  '[armed,folded,release=word]' '[armed,folded,release=local]'; do
  eight="$eight,host->ce3$o->gpu0"
done
eight="$eight,host->bar1[flush]->gpu0"
for o in '' '[warps=4]' '[warps=16]' '[blocks=4]' '[blocks=16]' '[blocks=4,warps=4]' '[answer=line]' '[store=avx512]' '[store=fenced]'; do
  eight="$eight,host->message$o->gpu0"
done
for o in '' ',warps=4' ',mail'; do
  eight="$eight,host->bar1[answered$o]->gpu0"
done
eight="$eight,gpu0->cuda->host,gpu0->cudart->host"
for o in '' '[folded]' '[release=word]' '[folded,release=word]' '[armed]' '[armed,folded,release=word]'; do
  eight="$eight,gpu0->ce3$o->host"
done
part eight bench --routes "$eight" --sizes 8B --samples 10000 --cpu "$cpu" --fifo --force -o "$out/eight.json"
part submit bench --routes 'host->cudart->gpu0,host->cuda->gpu0,host->ce2->gpu0,host->ce3->gpu0' --sizes 4KiB --samples 10000 --rounds 5 \
  --cpu "$cpu" --fifo --force -o "$out/submit.json"
routes='host->cuda->gpu0,gpu0->cuda->host'
for o in '' '[pushbuffer=host]' '[gpfifo=host]' '[userd=host]' '[gpfifo=host,userd=host]' '[gpfifo=host,pushbuffer=host,userd=host]' '[tracker=video]' '[doorbell=bar1]'; do
  routes="$routes,host->inline$o->gpu0,host->ce3$o->gpu0,gpu0->ce3$o->host"
done
part places bench --routes "$routes,host->ce3[folded]->gpu0,host->ce0->gpu0,gpu0->ce0->host,host->ce1->gpu0" --sizes 8B,4KiB --samples 10000 \
  --cpu "$cpu" --fifo --force -o "$out/places.json"
part sizes bench --routes plain --sizes 4B,64B,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB --samples 1000 --time-per-cell 0.5s \
  --cpu "$cpu" --fifo --force -o "$out/sizes.json"
part bandwidth bench bandwidth --rounds 20 --cpu "$cpu" --force -o "$out/bandwidth.json"
part raw bench raw --profiler --sizes 4B..16KiB,1KiB..31KiB/1KiB,32KiB..64MiB --cpu "$cpu" --fifo --force -o "$out/raw.json"
part worst bench worst --duration 60s --noise 10s --within 100us --cpu "$cpu" --force -o "$out/worst.json"
part beside bench beside --duration "${BESIDE:-300}s" --force -o "$out/beside.json"
echo; echo "Xid in the kernel log: $(($(xids) - before)) new"
