/* A program is executed by a descriptor that was opened with O_PATH, by the raw system call, from memory, or without argv.
   also: locker.c
   start opath: "$@" ./exec_unusual opath ./locker
   start opath_static: gcc -w -static locker.c -o static -pthread; "$@" ./exec_unusual opath ./static
   start execveat_static: gcc -w -static locker.c -o static -pthread; "$@" ./exec_unusual at ./static
   start memory: "$@" ./exec_unusual memory ./locker
   start dev_fd: "$@" ./exec_unusual dev_fd ./locker
   start without_environment: "$@" ./exec_unusual no_environment ./locker
   start without_argv: "$@" ./exec_unusual no_argv ./locker
   start raw: "$@" ./exec_unusual raw ./locker
   start raw_own: "$@" ./exec_unusual raw_own ./locker
   expect: locks >= 1000 or not whole or 'static' in said */
#include "around.h"
#include <sys/mman.h>

int main(int argc, char **argv)
{
    char *how = argv[1], *file = argv[2], *a[] = {file, NULL}, path[64], bytes[65536];
    int fd = open(file, O_PATH);
    if (!strcmp(how, "opath"))
        fexecve(fd, a, environ);
    if (!strcmp(how, "at"))
        execveat(fd, "", a, environ, AT_EMPTY_PATH);
    if (!strcmp(how, "memory")) {
        int to = memfd_create("x", 0), from = open(file, O_RDONLY);
        for (ssize_t n; (n = read(from, bytes, sizeof bytes)) > 0;)
            write(to, bytes, n);
        fexecve(to, a, environ);
    }
    if (!strcmp(how, "dev_fd")) {
        sprintf(path, "/dev/fd/%d", open(file, O_RDONLY));
        execv(path, a);
    }
    if (!strcmp(how, "no_environment"))
        execve(file, a, NULL);
    if (!strcmp(how, "no_argv"))
        execve(file, NULL, environ);
    if (!strcmp(how, "raw"))
        syscall(SYS_execve, file, a, environ);
    long r;
    if (!strcmp(how, "raw_own")) /* No function of libc's at all, as Go does it. */
        __asm__ volatile("syscall" : "=a"(r) : "0"(SYS_execve), "D"(file), "S"(a), "d"(environ) : "rcx", "r11", "memory");
    perror("exec");
    return 9;
}
