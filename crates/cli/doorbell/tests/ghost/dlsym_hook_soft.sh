#!/bin/sh
# The same with the software GPU.
# also: locker.c dlsym_hook.c
# start: LD_PRELOAD=$PWD/hook.so "$@" ./locker
# record: --gpu soft
# last: --gpu soft
# run: --gpu soft
# limit: 15
