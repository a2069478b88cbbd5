#!/bin/sh
# Standard error cannot be written: the status is the program's.
# start full: "$@" sh -c 'exit 5' 2>/dev/full
# start closed_pipe: { sleep 0.3; "$@" sh -c 'exit 5'; echo $? >status; } 2> >(true); cat status
# start closed: "$@" sh -c 'exit 5' 2>&-
# run: --report
