#!/usr/bin/env bash
# Copies beside set-up calls, from C and from Python, in turns: docs/results/undelayed.sh OUT [SECONDS a program, 38]
#
# Four runs, C, Python, C, Python, about 165 s in all; each is interrupted when it takes too long, and keeps what it has. It needs no
# cargo and no compiler, but a prefix (crates/gpu/libdoorbell/install.sh --prefix target/prefix) and the program built into it (the head of
# examples/c/undelayed.c says how). These environment variables are read:
#
#   PREFIX         the prefix; default: target/prefix
#   UNDELAYED      the C program; default: $PREFIX/undelayed
#   DOORBELL_LIB   libdoorbell.so, for both programs; default: $PREFIX/lib/libdoorbell.so
#   PYTHONPATH     the folder that has the Python package; default: $PREFIX/share/doorbell/python
#   PYTHON         the interpreter; default: python3
#   UNDELAYED_ARGS more arguments for both programs, for example "--kinds pinned,module"
#
# OUT gets c-N and python-N: .txt (tables and verdict), .json (figures), .raw (all samples, sorted by turn, as ns*count). tables.md: the runs of each program put
# together. Nothing else should use the GPU meanwhile.
set -u
. "$(dirname "$0")/lab.sh"
out=${1:?usage: undelayed.sh OUT [SECONDS]}
seconds=${2:-38}
prefix=${PREFIX:-$here/../../target/prefix}
program=${UNDELAYED:-$prefix/undelayed}
export DOORBELL_LIB=${DOORBELL_LIB:-$prefix/lib/libdoorbell.so}
export PYTHONPATH=${PYTHONPATH:-$prefix/share/doorbell/python} PYTHONDONTWRITEBYTECODE=1
python=${PYTHON:-python3}
for file in "$program" "$DOORBELL_LIB" "$PYTHONPATH/doorbell/__init__.py"; do
  [ -e "$file" ] || { echo "there is no $file" >&2; exit 2; }
done
mkdir -p "$out"
# The C program was linked to libdoorbell.so or, installed, to that name and the major version.
libraries=$(mktemp -d)
trap 'rm -rf "$libraries"' EXIT
for name in libdoorbell.so libdoorbell.so.0; do ln -s "$(realpath "$DOORBELL_LIB")" "$libraries/$name"; done
status=0

run() {
  local name=$1
  shift
  echo
  echo "## $name: $*"
  # shellcheck disable=SC2086
  LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout -s INT -k 20 $((seconds + 15)) "$@" --seconds "$seconds" \
    --patience 1 --rounds 9 --json "$out/$name.json" --raw "$out/$name.raw" ${UNDELAYED_ARGS:-} 2>&1 | tee "$out/$name.txt"
  local ended=${PIPESTATUS[0]}
  echo "exit status $ended"
  [ "$ended" = 0 ] || status=1
  if new_xid; then exit 1; fi
}

# The other way round the second time: what a run has no time for, another has. Python takes fewer samples a second, and p99.9 needs
# 10,000.
for n in 1 2; do
  threads=1,10
  [ "$n" = 1 ] || threads=10,1
  run "c-$n" "$program" --turn 0.6 --threads "$threads"
  run "python-$n" "$python" "$here/../../examples/python/undelayed.py" --turn 0.8 --threads "$threads"
done
echo
grep -H '^verdict' "$out"/*.txt
"$python" "$here/undelayed/tables.py" "$out" >"$out/tables.md" && echo "the runs of each program put together: $out/tables.md"
exit "$status"
