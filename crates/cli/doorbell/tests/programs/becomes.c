/* Starts another program in ways that libc's usual functions do not show. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* As Go's runtime does it: libc has no part in it. */
static void execve_past_libc(char *path, char **args)
{
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "0"(SYS_execve), "D"(path), "S"(args), "d"(environ) : "rcx", "r11", "memory");
}

static int spawn(posix_spawn_file_actions_t *actions, char *path, char **args, int in_path)
{
    pid_t pid;
    int status = -1;
    int r = (in_path ? posix_spawnp : posix_spawn)(&pid, path, actions, NULL, args, environ);
    if (!r) waitpid(pid, &status, 0);
    printf("spawned: %d, %x\n", r, status);
    return 0;
}

int main(int argc, char **argv)
{
    char *how = argv[1], *path = argv[2], *dir = argc > 3 ? argv[3] : ".", *args[] = {path, "x", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    /* (A process is recorded from its first use of a lock on.) */
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!strcmp(how, "raw")) execve_past_libc(path, args);
    if (!strcmp(how, "renamed")) {
        prctl(PR_SET_NAME, "another");
        _exit(5);
    }
    if (!strcmp(how, "syscall")) syscall(SYS_execve, path, args, environ);
    if (!strcmp(how, "syscall-at")) syscall(SYS_execveat, AT_FDCWD, path, args, environ, 0);
    if (!strcmp(how, "o_path")) fexecve(open(path, O_PATH), args, environ);
    if (!strcmp(how, "o_path-at")) execveat(open(path, O_PATH), "", args, environ, AT_EMPTY_PATH);
    if (!strcmp(how, "chdir")) {
        posix_spawn_file_actions_addchdir_np(&actions, dir);
        return spawn(&actions, path, args, 0);
    }
    if (!strcmp(how, "chdir-twice")) {
        posix_spawn_file_actions_addchdir_np(&actions, "/");
        posix_spawn_file_actions_addopen(&actions, 8, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addchdir_np(&actions, dir);
        return spawn(&actions, path, args, 0);
    }
    if (!strcmp(how, "fchdir")) {
        posix_spawn_file_actions_addfchdir_np(&actions, open(dir, O_RDONLY | O_CLOEXEC));
        return spawn(&actions, path, args, 0);
    }
    if (!strcmp(how, "fchdir-opened")) {
        posix_spawn_file_actions_addopen(&actions, 9, dir, O_RDONLY, 0);
        posix_spawn_file_actions_addfchdir_np(&actions, 9);
        return spawn(&actions, path, args, 0);
    }
    if (!strcmp(how, "chdir-path")) {
        setenv("PATH", ".", 1);
        posix_spawn_file_actions_addchdir_np(&actions, dir);
        return spawn(&actions, strrchr(path, '/') + 1, args, 1);
    }
    perror(how);
    return 9;
}
