/* What a program sees when it starts: signals, environment, descriptors, limits, and that it is alone. Also as a helper of other programs.
   start: "$@" ./around
   start ignored: trap '' HUP USR1 PIPE; "$@" ./around
   start blocked: "$@" ./around block
   cannot blocked: record SIGSEGV and SIGTRAP stay open in the kernel: doorbell's own faults are handled there
   cannot blocked: last SIGSEGV and SIGTRAP stay open in the kernel: doorbell's own faults are handled there
   start umask_0: umask 0; "$@" ./around
   start umask_077: umask 077; "$@" ./around
   start limits: ulimit -c 0; ulimit -n 100; ulimit -s 1024; "$@" ./around
   start nice: nice -n 5 "$@" ./around
   start descriptors: "$@" ./around 5</dev/zero 9>/dev/null 200</dev/null
   expect: whole and locks >= 18 */
#include "around.h"

int main(int argc, char **argv)
{
    around(stdout);
    if (argc > 1) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        argv[1] = NULL;
        execv(argv[0], argv);
    }
    lock(9);
    return 3;
}
