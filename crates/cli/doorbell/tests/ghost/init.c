/* The smallest init: starts a program and reaps everything.
   also: locker.c
   start: ./init "$@" ./locker
   start in_its_namespace: [ $(id -u) = 0 ] || exit 0; unshare -pf --mount-proc ./init "$@" ./locker */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int status;
    pid_t p = fork(), q;
    if (!p)
        execvp(argv[1], argv + 1);
    while ((q = wait(&status)) > 0)
        if (q == p)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 1;
}
