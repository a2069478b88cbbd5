/* Two children, each of which enters a separate pid namespace with its own /proc, without an exec: both are process 1 there. Each takes a
   lock, the first 1000 times and the second 2000 times, while the other one lives. Prints getpid's result. With an argument: each
   enters that root directory before its first lock. Exits with 77 if that is not allowed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ready[2], go[2];

static void inside(int n, const char *root)
{
    char c;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("proc", "/proc", "proc", 0, NULL))
        _exit(77);
    if (root && (chroot(root) || chdir("/")))
        _exit(77);
    for (int i = 0; i < n / 2; i++) {
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
    }
    if (write(ready[1], "", 1) != 1 || read(go[0], &c, 1) != 1)
        _exit(1);
    for (int i = n / 2; i < n; i++) {
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
    }
    printf("%d\n", (int)getpid());
    fflush(stdout);
    usleep(500000);
    exit(0);
}

int main(int argc, char **argv)
{
    int status = 0, worst = 0;
    char c;
    if (pipe(ready) || pipe(go))
        return 1;
    for (int child = 1; child <= 2; child++) {
        if (fork())
            continue;
        if (unshare(CLONE_NEWPID | CLONE_NEWNS))
            _exit(77);
        if (fork() == 0)
            inside(1000 * child, argc > 1 ? argv[1] : NULL);
        wait(&status);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    close(ready[1]);
    for (int child = 0; child < 2; child++)
        if (read(ready[0], &c, 1) != 1)
            break;
    if (write(go[1], "  ", 2) != 2)
        return 1;
    while (wait(&status) > 0)
        if (WEXITSTATUS(status) > worst)
            worst = WEXITSTATUS(status);
    return worst;
}
