#!/usr/bin/env bash
# The public POSIX conformance suite (open_posix_testsuite of the Linux Test Project), each program plain and under doorbell:
#   docs/results/posix.sh SUITE OUT [PATTERN]
# SUITE is a checkout's testcases/open_posix_testsuite, or a directory of programs that are built already (`name.run`).
# PATTERN (an extended regular expression) picks programs by name. What differs is run alone, TRIES times each way, and differs
# only if no verdict of one way comes in the other. DOORBELL names the binary, MODES the ways, JOBS how many run at a time.
set -u
here=$(cd "$(dirname "$0")" && pwd)
suite=${1:?usage: posix.sh SUITE OUT [PATTERN]}
out=${2:?usage: posix.sh SUITE OUT [PATTERN]}
pattern=${3:-.}
export DOORBELL=${DOORBELL:-$here/../../target/release/doorbell}
modes=${MODES:-record stock ticket pi phase-fair boost pi,phase-fair}
jobs=${JOBS:-6}
tries=${TRIES:-3}
export LIMIT=${LIMIT:-120}
mkdir -p "$out/bin" "$out/verdicts"
out=$(cd "$out" && pwd)
export OUT=$out

build() {
  cd "$suite" || exit 2
  { find conformance/interfaces \( -path '*/pthread_*' -o -path '*/sem_*' -o -path '*/fork/*' -o -path '*/sched_*' \) -name '*.c'
    find functional/threads functional/semaphores -name '*.c'; } | grep -v testfrmw | sort > "$out/sources"
  one() {
    name=$(echo "${1%.c}" | sed 's,conformance/interfaces/,,; s,/,.,g')
    grep -q 'main *(' "$1" || exit 0
    cc -w -O1 -D_GNU_SOURCE -std=gnu99 -Iinclude -I"$(dirname "$1")" -o "$OUT/bin/$name.run" "$1" lib/common.c -pthread -lrt -lm 2>> "$OUT/build.log" \
      || echo "$name" >> "$OUT/not-built"
  }
  export -f one
  : > "$out/build.log"; : > "$out/not-built"
  xargs -P "$(nproc)" -I{} bash -c 'one {}' < "$out/sources"
  echo "built $(ls "$out/bin" | wc -l), not built $(wc -l < "$out/not-built") (build.log says why)"
}
if [ -d "$suite/conformance" ]; then (build); bin=$out/bin; else bin=$(cd "$suite" && pwd); fi
export BIN=$bin

# One program one way: writes the exit status. A program gets a directory of its own, and is stopped after LIMIT seconds.
verdict() {
  local mode=$1 name=$2 to=$3 dir status
  dir=$(mktemp -d); cd "$dir" || exit 2
  case $mode in
    plain) set -- ;;
    record) set -- "$DOORBELL" record --locks --tap off --quiet --force -o "$dir/tape" -- ;;
    fix) set -- "$DOORBELL" run --fix=pins,copies -- ;;
    *) set -- "$DOORBELL" run --lock-policy "$mode" -- ;;
  esac
  timeout -k 2 "$LIMIT" "$@" "$BIN/$name.run" > "$dir/said" 2>&1 < /dev/null
  status=$?
  if [ "$mode" = record ] && [ -f "$dir/tape" ] && ! "$DOORBELL" show --locks "$dir/tape" > "$dir/shown" 2>&1; then
    status=$status-and-no-tape
  fi
  echo "$status" > "$to"
  [ "$status" = 0 ] || tail -c 600 "$dir/said" > "$to.said"
  cd /; rm -rf "$dir"
}
export -f verdict

ls "$bin" | sed -n 's/\.run$//p' | grep -E "$pattern" > "$out/names"
for mode in plain $modes; do
  mkdir -p "$out/verdicts/$mode"; export mode
  from=$(date +%s)
  xargs -P "$jobs" -I{} bash -c 'verdict "$mode" {} "$OUT/verdicts/$mode/{}"' < "$out/names"
  echo "$mode: $(wc -l < "$out/names") programs in $(($(date +%s) - from)) s"
done

word() { case $1 in 0) echo pass ;; 1) echo fail ;; 2) echo unresolved ;; 4) echo unsupported ;; 5) echo untested ;; 124|137) echo timeout ;; *) echo "status $1" ;; esac; }
echo; echo "| | pass | fail | unresolved | unsupported or untested | other | as plain | differ |"
echo "|---|--:|--:|--:|--:|--:|--:|--:|"
failed=0; : > "$out/differs"
for mode in plain $modes; do
  pass=0; fail=0; un=0; na=0; other=0; same=0; differ=0
  while read -r name; do
    v=$(cat "$out/verdicts/$mode/$name")
    case $v in 0) pass=$((pass + 1)) ;; 1) fail=$((fail + 1)) ;; 2) un=$((un + 1)) ;; 4|5) na=$((na + 1)) ;; *) other=$((other + 1)) ;; esac
    p=$(cat "$out/verdicts/plain/$name")
    if [ "$v" != "$p" ]; then
      # Alone: most of these judge by the time that something takes.
      plains=$p; mine=$v
      for _ in $(seq "$tries"); do
        verdict plain "$name" "$out/again"; plains="$plains $(cat "$out/again")"
        verdict "$mode" "$name" "$out/again"; mine="$mine $(cat "$out/again")"
      done
      common=no
      for a in $plains; do for b in $mine; do [ "$a" = "$b" ] && common=yes; done; done
      if [ $common = no ]; then
        differ=$((differ + 1)); failed=1
        echo "$mode $name: plain $(for a in $plains; do word "$a"; done | tr '\n' ' '), here $(for b in $mine; do word "$b"; done | tr '\n' ' ')" | tee -a "$out/differs" >&2
        continue
      fi
      echo "$mode $name: plain $plains, here $mine" >> "$out/varies"
    fi
    same=$((same + 1))
  done < "$out/names"
  echo "| $mode | $pass | $fail | $un | $na | $other | $same | $differ |"
done
[ -s "$out/varies" ] && echo "$(wc -l < "$out/varies") verdicts vary from run to run, plain ones too (varies)"
exit $failed
