#!/usr/bin/env bash
# The two tables of headline.md, measured in one run: docs/results/headline.sh OUT
#
# About seven minutes on a GPU machine; it is interrupted after 560 s, and keeps what it has. OUT/headline is the folder of the run: run.json (all figures), samples/*.parquet (every sample), parts,
# experiment.toml; OUT/headline.txt what it printed. It needs no cargo and no compiler, only these, which the environment names:
#
#   DOORBELL            the program `doorbell` (default: cargo's release build; stripped, it is about 27 MB). libdoorbell's functions and the Python package
#                       are inside it
#   DOORBELL_PYTHON     the Python interpreter whose version and standard library are used (default: python3)
#   DOORBELL_LIBPYTHON  lib/libpython3.N.so.1.0 of another installation of Python, where the interpreter's own is not installed (Debian, Ubuntu: package
#                       libpython3.N); the standard library lib/python3.N next to it is then used. Without a library the cells of Python are
#                       "not available", and the others are measured
#
# ARGS: more arguments for `doorbell bench headline`, for example "--gpu soft --set run.duration=1s". Nothing else should use the GPU meanwhile.
# Exit status: that of `doorbell bench`; 1 also if the GPU's driver reported an Xid.
set -u
. "$(dirname "$0")/lab.sh"
out=${1:?usage: headline.sh OUT}
[ -x "$d" ] || { echo "there is no program $d: cargo build --release, or name it in DOORBELL" >&2; exit 2; }
mkdir -p "$out" || exit 2
# shellcheck disable=SC2086
timeout -k 20 -s INT 560 "$d" bench headline --force -o "$out/headline" ${ARGS:-} >"$out/headline.txt" 2>&1 </dev/null
status=$?
cat "$out/headline.txt"
echo "exit status $status, $SECONDS s"
if new_xid; then status=1; fi
exit "$status"
