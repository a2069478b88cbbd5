#!/bin/sh
# doorbell in doorbell: the inner one does its work, or says that it does not. The program sees neither.
# also: around.c
# start record: "$@" "$THE_DOORBELL" record --locks -o inner.doorbell ./around
# start run: "$@" "$THE_DOORBELL" run --lock-policy ticket --report ./around
