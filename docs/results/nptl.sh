#!/usr/bin/env bash
# The tests that the GNU C Library has of its own threads, each program plain and under doorbell:
#   docs/results/nptl.sh SOURCE OUT [PATTERN]
# SOURCE is a source tree of the release that the system's libc is of; nothing of that is built but its tests and what they
# share. What needs the library's insides, or is linked without ld.so, is left out (not-built says why). The rest is posix.sh's,
# with its variables.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export SOURCE=$(cd "${1:?usage: nptl.sh SOURCE OUT [PATTERN]}" && pwd)
mkdir -p "${2:?usage: nptl.sh SOURCE OUT [PATTERN]}/bin" "$2/obj"
export OUT=$(cd "$2" && pwd)
: > "$OUT/obj/config.h"
# Of the library's insides a few tests use no more than this.
cat > "$OUT/obj/atomic.h" <<'END'
#define __HAVE_64B_ATOMICS 1
#define atomic_load_relaxed(at) __atomic_load_n (at, __ATOMIC_RELAXED)
#define atomic_store_relaxed(at, value) __atomic_store_n (at, value, __ATOMIC_RELAXED)
END
{
  printf '%s\n' '#include <atomic.h>' '#define SIGCANCEL 32' '#define SIGSETXID 33'
  grep -A1 'define.PTHREAD_RWLOCK_' "$SOURCE/sysdeps/nptl/pthreadP.h" | grep -v ^--
} > "$OUT/obj/pthreadP.h"
# The library's own headers come last: only those that the system lacks are taken.
export FLAGS="-w -O1 -std=gnu11 -D_GNU_SOURCE -DTIMEOUTFACTOR=1 -include limits.h -include stdbool.h -I$SOURCE/support -I$SOURCE/nptl"
for dir in "$OUT/obj" "$SOURCE" "$SOURCE/include" "$SOURCE"/sysdeps/{pthread,nptl,unix/sysv/linux,generic}; do FLAGS="$FLAGS -idirafter $dir"; done

# What the tests share; what of it needs the library's insides is missed by few.
share() {
  # (One file asks for the build's directories.)
  cc $FLAGS $(grep -oE 'please -D[A-Z_]+' "$1" | sed 's,.*-D\(.*\),-D\1="/",') -c -o "$OUT/obj/$(basename "${1%.c}").o" "$1" 2> /dev/null
}
one() {
  name=$(basename "${1%.c}"); more=
  case $name in
    *-static|tst-support*) echo "$name: without ld.so" >> "$OUT/not-built"; exit 0 ;;
    *mod|*mod[0-9]|*mod[a-z]) cc $FLAGS -fPIC -shared -o "$OUT/obj/$name.so" "$1" 2> /dev/null; exit 0 ;;
    tst-cancelx1) ;;
    *x[0-9]*) more="-fexceptions -fasynchronous-unwind-tables" ;;
    tst-cleanup2) more=-fno-builtin ;;
    tst-atfork*|tst-create1) more=-rdynamic ;;
  esac
  grep -qE 'main *\(|test-skeleton.c|test-driver.c|include ["<](.*/)?tst-' "$1" || exit 0
  if ! cc $FLAGS $more -o "$OUT/obj/$name.exe" "$1" "$OUT/obj/libshared.a" -pthread -lrt -lm -ldl 2> "$OUT/obj/$name.log"; then
    echo "$name: $(grep -m1 -oE '(error|undefined reference).*' "$OUT/obj/$name.log")" >> "$OUT/not-built"; exit 0
  fi
  args=
  case $name in tst-cancel7|tst-cancelx7) args="--command 'exec $OUT/obj/$name.exe'" ;; tst-exec4) args=$OUT/obj/$name.exe ;; esac
  # (Some read a file of this name, others load their modules.)
  printf '#!/bin/sh\necho > Makefile\nLD_LIBRARY_PATH=%s exec %s %s\n' "$OUT/obj" "$OUT/obj/$name.exe" "$args" > "$OUT/bin/$name.run"
  chmod +x "$OUT/bin/$name.run"
}
export -f share one
: > "$OUT/not-built"
find "$SOURCE/support" -name '*.c' ! -name 'tst-*' ! -name '*-container.c' ! -name '*_string_main.c' ! -name '*_blob_main.c' ! -name 'README*' \
  ! -name 'links-dso*' ! -name test-run-command.c ! -name support_test_compare_string_wide.c -print0 | xargs -0 -P "$(nproc)" -I{} bash -c 'share {}'
ar rc "$OUT/obj/libshared.a" "$OUT"/obj/*.o
find "$SOURCE/nptl" "$SOURCE/sysdeps/pthread" -maxdepth 1 -name 'tst-*.c' -print0 | xargs -0 -P "$(nproc)" -I{} bash -c 'one {}'
echo "built $(ls "$OUT/bin" | wc -l), not built $(wc -l < "$OUT/not-built") (not-built says why)"
[ "${ONLY_BUILD-}" ] || TIMEOUTFACTOR=${TIMEOUTFACTOR:-2} LIMIT=${LIMIT:-60} exec "$here/posix.sh" "$OUT/bin" "$OUT" "${3:-.}"
