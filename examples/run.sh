#!/bin/sh
# run.sh [--soft] [--from DIR] [EXAMPLE [ARGUMENT...]]: builds and runs an example, such as c/frames.c, or all of them in C, C++ and Python for a moment each.
#
# --soft: without a GPU, on one in software. --from: a folder with the libraries; without it they are built first, in release mode.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/..
soft='' from=''
while [ $# -gt 0 ]; do
  case $1 in
    --soft) soft=1; shift ;;
    --from) from=${2:?--from needs a folder}; shift 2 ;;
    -*) sed -n '2,4s/^# //p' "$0" >&2; exit 2 ;;
    *) break ;;
  esac
done
if [ -z "$from" ]; then
  (cd "$root" && cargo build --release -p libdoorbell -p softgpu -p softcuda)
  from=${CARGO_TARGET_DIR:-$root/target}/release
fi
from=$(cd "$from" && pwd)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
ln -s "$from/libsoftcuda.so" "$work/libcuda.so.1"

# A command with the library, and with --soft a GPU and a libcuda in software.
with_library() {
  export PYTHONPATH="$root/python" PYTHONDONTWRITEBYTECODE=1 DOORBELL_LIB="$from/libdoorbell.so"
  if [ -n "$soft" ]; then
    DOORBELL_SOFTGPU=poll LD_LIBRARY_PATH="$work:$from" LD_PRELOAD="$from/libdoorbell_softgpu.so" "$@"
  else
    LD_LIBRARY_PATH="$from${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
  fi
}

compile() {
  "$@" -O1 -Wall -Wextra -Werror -pthread -I"$root/crates/gpu/libdoorbell/include" -I"$here/c" -o "$work/example" "$here/$example" -L"$from" -ldoorbell -ldl
}

run() {
  example=$1
  shift
  case $example in
    *.c) compile "${CC:-cc}" -std=gnu11 && with_library "$work/example" "$@" ;;
    *.cpp) compile "${CXX:-c++}" -std=c++17 && with_library "$work/example" "$@" ;;
    *.py) with_library python3 "$here/$example" "$@" ;;
    *) echo "$example: neither C, C++ nor Python" >&2; return 2 ;;
  esac
}

# A file of safetensors with one tensor.
model() {
  python3 -c 'import sys
header = b"{\"w\":{\"dtype\":\"F32\",\"shape\":[300,1000],\"data_offsets\":[0,1200000]}}"
sys.stdout.buffer.write(len(header).to_bytes(8, "little") + header + bytes(n // 7 % 256 for n in range(1200000)))' >"$work/model.safetensors"
}

# An example with arguments for a short run.
short() {
  case $1 in
    c/peers.c) if [ -n "$soft" ]; then echo "skipped: it needs two GPUs"; else run "$1"; fi ;;
    */frame_loop.*) run "$1" 0.05 other ;;
    */undelayed.*) run "$1" ${soft:+--software} --turn 0.01 --patience 0.01 --rounds 1 --threads 1 --kinds device ;;
    */load_model.py) model && run "$1" "$work/model.safetensors" ;;
    */order_cost.c) run "$1" 10 ;;
    */ordered.c) run "$1" 1200 ;;
    */pages.*) run "$1" 256 ;;
    */check.c) run "$1" 144 ;;
    *) run "$1" 100 ;;
  esac
}

if [ $# -gt 0 ]; then
  run "$@"
  exit
fi
failed=''
cd "$here"
for each in c/*.c cpp/*.cpp python/*.py; do
  echo "== $each"
  short "$each" || failed="$failed $each"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
