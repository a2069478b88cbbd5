/* A control group of 100 MB: the rings of 20 busy threads must not use up what the program needs.
   needs: root
   also: busy.c
   try: G=/sys/fs/cgroup; [ ! -d $G/memory ] || G=$G/memory; P=$G/ghost-try; mkdir $P && ls $P | grep -q 'memory.limit_in_bytes\|memory.max'; S=$?; rmdir $P; [ $S = 0 ] || echo no control groups of memory; exit $S
   start: G=/sys/fs/cgroup; [ ! -d $G/memory ] || G=$G/memory; P=$G/ghost; mkdir $P; for f in memory.limit_in_bytes memory.max; do [ ! -e $P/$f ] || echo 100000000 > $P/$f; done; (echo $BASHPID > $P/cgroup.procs; exec "$@" ./busy 20 3); S=$?; while ! rmdir $P; do sleep 0.2; done; exit $S */
int main(void) {}
