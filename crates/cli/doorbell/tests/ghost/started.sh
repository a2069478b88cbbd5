#!/bin/sh
# Programs that are started in unusual surroundings, by tools, or not at all.
# also: around.c locker.c
# start env_i: "$@" env -i ./around
# start no_environment: env -i "$@" ./around
# start tunables: GLIBC_TUNABLES=glibc.malloc.check=3:glibc.pthread.rseq=0 "$@" ./around
# start link: ln -s around other; "$@" ./other
# start no_folder: mkdir d; cd d; rmdir ../d; "$@" ../around
# cannot no_folder: record a folder that is not there is a wrong option, and ends before the program starts
# cannot no_folder: last a folder that is not there is a wrong option, and ends before the program starts
# start name: "$@" bash -c 'exec -a another ./around'
# start no_shebang: echo 'echo a script; exit 4' >s; chmod 755 s; "$@" ./s
# start input: seq 100000 | "$@" sort -n | sha256sum
# start broken_pipe: "$@" yes | head -1; echo ${PIPESTATUS[0]}
# start stdbuf: "$@" stdbuf -oL ./around
# start timeout: "$@" timeout 0.5 sleep 5
# start timeout_outside: timeout 0.5 "$@" sleep 5
# start nohup: "$@" nohup ./around
# start setsid: "$@" setsid -w ./around
# start strace_outside: command -v strace >/dev/null || exit 0; strace -f -o /dev/null "$@" ./locker
# start valgrind: command -v valgrind >/dev/null || exit 0; "$@" valgrind -q ./locker
# start xargs: seq 40 | "$@" xargs -P 8 -n 1 ./locker | sort | uniq -c
# start suid: [ $(id -u) = 0 ] || exit 0; chmod 1777 .; chmod 4755 around; setpriv --reuid=65534 --regid=65534 --clear-groups "$@" sh -c ./around
# start deleted: "$@" sh -c 'rm locker around; exec /proc/self/exe -c "echo still here"'
# start killed: "$@" sh -c 'kill -9 $$'
# start uid: [ $(id -u) = 0 ] || exit 0; chmod 755 .; "$@" setpriv --reuid=65534 --regid=65534 --clear-groups ./around
# start capabilities: [ $(id -u) = 0 ] || exit 0; "$@" setpriv --bounding-set -all --inh-caps -all ./around
# start cpu_outside: taskset -c 0 "$@" ./around
# start batch: chrt -b 0 "$@" ./around
# start binary_argument: "$@" ./locker $'\xff\xfe' ''
# start group: "$@" sh -c 'sleep 30 & kill $!; wait $! 2>/dev/null; echo $?'
# start session_leader: setsid -w "$@" sh -c 'trap "echo term; exit 9" TERM; kill -TERM 0; sleep 1'
# limit: 30
