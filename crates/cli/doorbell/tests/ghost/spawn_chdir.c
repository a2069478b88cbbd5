/* posix_spawn in another folder, with a relative path: another program of that name may be in the parent's folder.
   also: locker.c
   start: mkdir child; mv locker child/rel; "$@" ./spawn_chdir child ./rel
   start static: mkdir child; gcc -w -static locker.c -o child/rel -pthread; mv locker rel; "$@" ./spawn_chdir child ./rel
   start other_here: mkdir child; mv locker child/rel; gcc -w -static locker.c -o rel -pthread; "$@" ./spawn_chdir child ./rel
   expect: locks >= 1000 or not whole or 'static' in said */
#include "around.h"
#include <spawn.h>

int main(int argc, char **argv)
{
    posix_spawn_file_actions_t f;
    pid_t p;
    int status = -1;
    posix_spawn_file_actions_init(&f);
    posix_spawn_file_actions_addchdir_np(&f, argv[1]);
    int r = posix_spawn(&p, argv[2], &f, NULL, argv + 2, environ);
    if (!r)
        waitpid(p, &status, 0);
    printf("posix_spawn %d, status %x\n", r, status);
    return 0;
}
