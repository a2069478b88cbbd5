#!/bin/sh
# Limits that hold for doorbell, too: whatever it lacks, the program runs.
# also: locker.c busy.c
# start locked_memory: ulimit -l 0; "$@" ./locker
# start pending_signals: ulimit -i 0; "$@" ./locker
# start data: ulimit -d 20000; "$@" ./locker
# start data_small: ulimit -d 4000; "$@" ./locker
# start cpu_time: ulimit -t 1; "$@" sleep 1
# start descriptors: ulimit -n 12; "$@" ./locker
# start file_size: (ulimit -f 0; "$@" ./locker 2>&1; echo $?) | while read -r l; do case $l in doorbell*|error:*|hint:*) echo "$l" >&2;; *) echo "$l";; esac; done
# start file_size_1_mb: (ulimit -f 1024; "$@" ./busy 4 1 2>&1; echo $?) | while read -r l; do case $l in doorbell*|error:*|hint:*) echo "$l" >&2;; *) echo "$l";; esac; done
# start stack: ulimit -s 256; "$@" ./locker
# start stack_unlimited: ulimit -s unlimited; "$@" ./locker
# start address_space: ulimit -v 100000; "$@" ./locker
# start core: ulimit -c 0; "$@" sh -c 'kill -SEGV $$'
# start no_proc: [ $(id -u) = 0 ] || exit 0; unshare -m sh -c 'mount -t tmpfs none /proc; "$@" ./locker' sh "$@"
# start no_tmp: [ $(id -u) = 0 ] || exit 0; unshare -m sh -c 'export TMPDIR=/nowhere XDG_RUNTIME_DIR=/nowhere; "$@" ./locker' sh "$@"
# start read_only: [ $(id -u) = 0 ] || exit 0; unshare -m sh -c 'mount --bind . . && mount -o remount,ro,bind . && cd $PWD && "$@" ./locker' sh "$@"
# start noexec_shm: [ $(id -u) = 0 ] || exit 0; unshare -m sh -c 'mount -t tmpfs -o noexec none /dev/shm; mount -o remount,noexec /tmp 2>/dev/null; "$@" ./locker' sh "$@"
# limit: 20
