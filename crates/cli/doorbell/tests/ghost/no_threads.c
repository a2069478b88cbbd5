/* The limit of processes and threads is reached: doorbell cannot start a thread, the program can still run.
   needs: root, prlimit, setpriv
   also: busy.c
   start of_3: prlimit --nproc=3 setpriv --reuid=65533 --regid=65533 --clear-groups "$@" ./busy 1 2
   start of_5: prlimit --nproc=5 setpriv --reuid=65533 --regid=65533 --clear-groups "$@" ./busy 1 2
   start of_8: prlimit --nproc=8 setpriv --reuid=65533 --regid=65533 --clear-groups "$@" ./busy 1 2
   start pids_limit: G=/sys/fs/cgroup; [ ! -d $G/pids ] || G=$G/pids; P=$G/ghost; mkdir $P || exit; echo 3 > $P/pids.max; (echo $BASHPID > $P/cgroup.procs; exec "$@" ./busy 1 2); S=$?; while ! rmdir $P 2>/dev/null; do sleep 0.2; done; exit $S
   start address_space: ulimit -v 300000; "$@" ./busy 1 2
   start less_address_space: ulimit -v 120000; "$@" ./busy 1 2 */
int main(void) {}
