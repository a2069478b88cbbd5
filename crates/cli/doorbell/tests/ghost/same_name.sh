#!/bin/sh
# Several programs record to the same name: ranks of a job, and a job that is started again. Each program runs.
# also: locker.c
# record: -o j-%q{JOB}.doorbell
# last: -o j-%q{JOB}.doorbell
# start three_ranks: export JOB=7; { for i in 1 2 3; do "$@" ./locker & P="$P $!"; done; for p in $P; do wait $p; echo $?; done; } | sort
# start started_again: export JOB=7; "$@" ./locker; echo $?; "$@" ./locker
# start no_such_variable: "$@" ./locker
# cannot no_such_variable: all a name that cannot be is a wrong option, and ends before the program starts
# start no_such_folder: export JOB=7/8; "$@" ./locker
# cannot no_such_folder: all a folder that is not there is a wrong option, and ends before the program starts
# run: -
