#!/bin/sh
# An entry script that runs a command before `exec ./app` has done nothing unusual.
# also: locker.c
# expect: whole and locks >= 1000
/bin/true
exec ./locker
