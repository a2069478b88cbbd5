#!/usr/bin/env bash
# What programs' own tests say plain, recorded and under each policy: docs/results/suites.sh OUT [cpython ringing realtime threads
# seccomp sanitizers limits ...]
# A row is a program, a column a way to run it: `same` as plain (status and what it prints), `refused` by doorbell with a reason, or
# what differs. What differs is run TRIES times more, plain and that way, and differs only if no verdict of one comes in the other. The POSIX suite and
# glibc's tests have scripts of their own: posix.sh, nptl.sh. DOORBELL names the binary, PYTHON a python3 with its test
# package, MODULES its modules, MODES the ways (`fix` is run --fix=pins,copies), LIMIT the seconds that one run may take.
set -u
. "$(dirname "$0")/lab.sh"
out=${1:?usage: suites.sh OUT [cpython ringing realtime threads seccomp sanitizers limits]}
shift
parts=${*:-cpython ringing realtime threads seccomp sanitizers limits}
modes=${MODES:-record stock ticket pi phase-fair boost}
limit=${LIMIT:-300}
tries=${TRIES:-2}
sources=$here/../../crates/cli/doorbell/tests/programs
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# One run in a directory of its own; its verdict in `verdict`. `alike` keeps of the output what must not differ.
once() {
  local mode=$1 dir status before=(); shift
  dir=$(mktemp -d "$work/run.XXXXXX")
  case $mode in
    plain) ;;
    fix) before=("$d" run --fix=pins,copies --) ;;
    record) before=("$d" record --locks --tap off --quiet -o "$dir/tape" --) ;;
    *) before=("$d" run --lock-policy "$mode" --) ;;
  esac
  # (Through a pipe: a limit of file sizes is not meant for what it prints. The braces keep the shell's own words out.)
  { { (cd "$dir" && eval "${before_all:-:}" && exec timeout -k 5 "$limit" "${before[@]}" "$@") 2>&3 3>&- < /dev/null | cat > "$dir/said"
      echo "${PIPESTATUS[0]}" > "$dir/status"; } 3>&1 | cat > "$dir/complaints"; } 2> /dev/null
  status=$(cat "$dir/status")
  verdict="$status $(alike < "$dir/said" | cksum)"
  lost=
  if [ "$mode" = record ] && [ -f "$dir/tape" ]; then
    lost=$("$d" show --locks --json "$dir/tape" 2> /dev/null | python3 -c 'import json,sys; print(json.load(sys.stdin)["lost_events"])' 2> /dev/null || echo '?')
  fi
  refused=
  [ "$status" = 125 ] && refused=$(grep -m1 '^error: ' "$dir/complaints" | sed 's/^error: //' | tr '|' ' ' | cut -c1-100)
  case $status in 124 | 137) said="still running after $limit s" ;; *) said="status $status: $(tail -n 1 "$dir/complaints" | tr '|' ' ' | cut -c1-60)" ;; esac
  rm -rf "$dir"
}
alike() { cat; }

head_of() {
  echo; echo "## $1"; echo
  printf '| program | plain |'; for m in $modes; do printf ' %s |' "$m"; done; echo
  printf '|---|---|'; for _ in $modes; do printf -- '---|'; done; echo
}

# A row: name, then the words to run.
row() {
  local name=$1 mode plain from took; shift
  from=$(date +%s.%N); once plain "$@"; plain=$verdict
  took=$(awk -v a="$from" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
  printf '| %s | %s, %s s |' "$name" "$([ "${plain%% *}" = 0 ] && echo passes || echo "$said")" "$took"
  for mode in $modes; do
    from=$(date +%s.%N); once "$mode" "$@"
    took=$(awk -v a="$from" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
    if [ -n "$refused" ]; then printf ' refused: %s |' "$refused"; continue; fi
    if [ "$verdict" != "$plain" ]; then
      local plains=" $plain;" mine=" $verdict;" what=$said common=no
      for _ in $(seq "$tries"); do
        once plain "$@"; plains="$plains $verdict;"
        once "$mode" "$@"; mine="$mine $verdict;"
      done
      while IFS= read -r -d ';' v; do case $plains in *"$v;"*) common=yes ;; esac; done <<< "$mine"
      if [ $common = no ]; then printf ' **%s** |' "$what"; failed=1; continue; fi
      printf ' varies, as plain, %s s |' "$took"; continue
    fi
    printf ' same, %s s%s |' "$took" "$([ -n "$lost" ] && [ "$lost" != 0 ] && echo ", lost $lost")"
    [ -z "$lost" ] || [ "$lost" = 0 ] || failed=1
  done
  echo
}

skipped() { echo "| $1 | skipped: $2 |"; }

compiled() { # name compiler flags...
  local name=$1 cc=$2; shift 2
  command -v "$cc" > /dev/null || { why="$cc is not installed"; return 1; }
  "$cc" -O1 -w -pthread -o "$work/$name-$cc" "$sources/$name.c" "$@" 2> "$out/$name-$cc.log" || { why="$cc $* fails (see $name-$cc.log)"; return 1; }
  program=$work/$name-$cc
}

for part in $parts; do
  alike() { cat; }; before_all=:
  case $part in
    cpython)
      echo; echo "## CPython's own tests"; echo
      # (What is called python3 may be a script that starts it.)
      python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)' 2> /dev/null)
      "$python" -c 'import test.test_threading' 2> /dev/null || { skipped CPython "no python3 with its test package (libpython3-testsuite)"; continue; }
      # Compared case by case: cpython.py says how.
      # shellcheck disable=SC2086
      "$python" "$here/cpython.py" "$d" "$out" "${LIMIT:-900}" "$tries" "$modes" ${MODULES-} || failed=1 ;;
    ringing)
      echo; echo "## CPython's own tests while each Python process uses the software GPU"; echo
      python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)' 2> /dev/null)
      "$python" -c 'import test.test_threading' 2> /dev/null || { skipped CPython "no python3 with its test package (libpython3-testsuite)"; continue; }
      # (The versions that the workspace uses.)
      cp "$here/../../Cargo.lock" "$here/ringing/"
      cargo build --quiet --manifest-path "$here/ringing/Cargo.toml" --target-dir "$work/ringing" 2> "$out/ringing.log" ||
        { skipped CPython "ringing does not build (see ringing.log)"; continue; }
      # (Not test_subprocess: it counts the descriptors of Pythons that use no GPU.)
      # shellcheck disable=SC2086
      RINGING=$work/ringing/debug/libringing.so PYTHONPATH=$here/ringing "$python" "$here/cpython.py" "$d" "$out" "${LIMIT:-900}" \
        "$tries" "gpu-patch gpu-trap" ${MODULES:-test_threading test_threadsignals test_signal test_faulthandler test_fork1 test_popen test_posix} || failed=1 ;;
    realtime)
      head_of "Real-time programs"
      # Their figures are times: that they end with all their lines is what counts.
      alike() { tr -d '0-9 -' | sort -u; }
      for p in "cyclictest -m -q -D 2" "cyclictest -m -q -t 4 -D 2" "ptsematest -l 500 -q" "hackbench -T -g 2 -l 200" "pi_stress --duration 3 --quiet"; do
        command -v "${p%% *}" > /dev/null || { skipped "$p" "not installed (rt-tests)"; continue; }
        # shellcheck disable=SC2086
        row "$p" $p
      done ;;
    threads)
      head_of "Threads that live for two locks"
      for p in "10000 1" "10000 100"; do
        compiled short_threads cc || { skipped short_threads "$why"; continue; }
        # shellcheck disable=SC2086
        row "short_threads $p" "$program" $p
      done ;;
    seccomp)
      head_of "System call filters"
      for p in kill-gettid errno-gettid strict notsc "strict first" "notsc first"; do
        compiled seccomp cc || { skipped "seccomp $p" "$why"; continue; }
        # shellcheck disable=SC2086
        row "seccomp $p" "$program" $p
      done ;;
    sanitizers)
      head_of "Sanitizers"
      for cc in gcc clang; do
        for s in thread address undefined; do
          compiled contend $cc -fsanitize=$s -g || { skipped "$cc -fsanitize=$s" "$why"; continue; }
          row "$cc -fsanitize=$s" "$program" 4 300
        done
      done ;;
    limits)
      head_of "Limits"
      compiled contend cc || { skipped limits "$why"; continue; }
      for l in "-f 0" "-f 1" "-v 1000000" "-l 0" "-l 64"; do before_all="ulimit $l"; row "ulimit $l" "$program"; done
      before_all=:
      compiled mlockall cc && { row mlockall "$program"; row "mlockall as a user" "$program" user; } ;;
    *) echo "no part of that name: $part" >&2; exit 2 ;;
  esac
done
exit $failed
