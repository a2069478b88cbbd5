#!/bin/sh
# install.sh --prefix DIR [--from DIR]: the header, both libraries, doorbell.pc and the Python package into a prefix.
#
# Builds the libraries first (cargo, cc). With --from they are taken from a folder that has libdoorbell.a and, unless it is to be
# linked here, libdoorbell.so. The Python package goes to PREFIX/share/doorbell/python, with a link to the library: put that into PYTHONPATH.
# No file names the prefix: it can be moved or packed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix='' from=''
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=${2:?--prefix needs a folder}; shift 2 ;;
    --from) from=${2:?--from needs a folder}; shift 2 ;;
    *) echo "usage: install.sh --prefix DIR [--from DIR]" >&2; exit 2 ;;
  esac
done
[ -n "$prefix" ] || { echo "usage: install.sh --prefix DIR [--from DIR]" >&2; exit 2; }
. "$here/version.sh"
if [ -z "$from" ]; then
  (cd "$here" && cargo rustc -p libdoorbell --release --crate-type staticlib)
  from=$(mktemp -d)
  trap 'rm -r "$from"' EXIT
  ln -s "$(cd "${CARGO_TARGET_DIR:-$here/../../../target}" && pwd)/release/libdoorbell.a" "$from/libdoorbell.a"
fi
[ -e "$from/libdoorbell.so" ] || sh "$here/link.sh" "$from"
mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/share/doorbell/python/doorbell/fleet"
prefix=$(cd "$prefix" && pwd)
install -m 644 "$here/include/doorbell.h" "$here/include/doorbell.hpp" "$prefix/include/"
install -m 755 "$from/libdoorbell.so" "$prefix/lib/libdoorbell.so.$version"
ln -sf "libdoorbell.so.$version" "$prefix/lib/libdoorbell.so.$interface"
ln -sf "libdoorbell.so.$interface" "$prefix/lib/libdoorbell.so"
install -m 644 "$from/libdoorbell.a" "$prefix/lib/"
sed "s|@VERSION@|$version|" "$here/doorbell.pc.in" >"$prefix/lib/pkgconfig/doorbell.pc"
install -m 644 "$here"/../../../python/doorbell/*.py "$here"/../../../python/doorbell/py.typed "$prefix/share/doorbell/python/doorbell/"
install -m 644 "$here"/../../../python/doorbell/fleet/*.py "$prefix/share/doorbell/python/doorbell/fleet/"
ln -sf ../../../../lib/libdoorbell.so "$prefix/share/doorbell/python/doorbell/libdoorbell.so"
echo "doorbell $version in $prefix"
