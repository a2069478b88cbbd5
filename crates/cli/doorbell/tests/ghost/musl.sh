#!/bin/sh
# Programs of musl, started by a descriptor and in another folder.
# needs: musl-gcc
# also: locker.c exec_unusual.c spawn_chdir.c
# start descriptor: musl-gcc -w locker.c -o musl || exit; "$@" ./exec_unusual opath ./musl
# start folder: mkdir child; musl-gcc -w locker.c -o child/rel; cp locker rel; "$@" ./spawn_chdir child ./rel
