#!/bin/sh
# link.sh FOLDER: links FOLDER/libdoorbell.so from FOLDER/libdoorbell.a, with $CC (default: cc).
#
# Each symbol has a version, so that a program says at its start which interface it lacks. rustc cannot give symbols versions: it has a version script of its
# own.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/version.sh"
script=$1/libdoorbell.map
printf 'DOORBELL_%s {\n    global: doorbell_*;\n    local: *;\n};\n' "$interface" >"$script"
${CC:-cc} -shared -o "$1/libdoorbell.so" -Wl,-soname,"libdoorbell.so.$interface" -Wl,--version-script="$script" -Wl,--gc-sections \
  -Wl,-z,relro,-z,now -Wl,--whole-archive "$1/libdoorbell.a" -Wl,--no-whole-archive -lgcc_s -lutil -lrt -lpthread -lm -ldl
rm "$script"
