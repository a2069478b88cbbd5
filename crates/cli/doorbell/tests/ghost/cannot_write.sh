#!/bin/sh
# The recording cannot be written, or its reader leaves: the program runs and keeps its status.
# also: locker.c
# record: -o there/a.doorbell
# last: -o there/a.doorbell
# start full_disk: mkdir there; mount -t tmpfs -o size=16k none there || exit; "$@" ./locker; S=$?; umount -l there; exit $S
# start fifo_without_reader: mkdir there; mkfifo there/a.doorbell; sleep 1 <there/a.doorbell & "$@" ./locker; S=$?; kill $! 2>/dev/null; wait; exit $S
# start folder_removed: mkdir there; "$@" sh -c 'rm -r there; ./locker'
# needs: root
# run: -
# limit: 15
