#!/bin/sh
# Under the software GPU: a program under another preloaded library that replaces dlsym.
# also: dlsym_hook.c locker.c
# start shell: "$@" env LD_PRELOAD=$PWD/hook.so sh -c 'echo hi'
# start outside: LD_PRELOAD=$PWD/hook.so "$@" sh -c 'echo hi'
# record: --gpu soft
# last: --gpu soft
# run: --gpu soft
# limit: 15
