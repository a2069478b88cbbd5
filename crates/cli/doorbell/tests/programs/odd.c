/* Unusual ways to start other programs. The first argument selects one:
   env P..     execs P with an environment that has doubles, an entry without a name and one without a value
   start P..   execs P
   bad         execs with invalid environments, and prints the kernel's errors
   shell C     runs the command C by system and by popen
   raw P       starts P by direct system calls
   daemon F    continues in the background without its parent, takes locks after a while, and creates the file F
   traced      asks to be traced, gets a signal that it ignores, and exits with 5
   forks N     forks N children at the same time, each of which takes a lock; prints how long that took them (ms): p50, p99, worst */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

static double ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void *lock(void *unused)
{
    pthread_mutex_lock(&m);
    pthread_mutex_unlock(&m);
    return unused;
}

static int by_value(const void *a, const void *b)
{
    double x = *(double *)a, y = *(double *)b;
    return (x > y) - (x < y);
}

static void forks(int n)
{
    double took[1000];
    int p[2];
    lock(NULL);
    pipe(p);
    for (int i = 0; i < n; i++)
        if (!fork()) {
            double begun = ms(), d;
            lock(NULL);
            d = ms() - begun;
            write(p[1], &d, sizeof d);
            _exit(0);
        }
    for (int i = 0; i < n; i++)
        read(p[0], &took[i], sizeof took[i]);
    while (wait(NULL) > 0)
        ;
    qsort(took, n, sizeof *took, by_value);
    printf("%.3f %.3f %.3f\n", took[n / 2], took[n * 99 / 100], took[n - 1]);
}

static void bad(void)
{
    char *a[] = {"true", NULL}, *broken[] = {"A=1", (char *)8, NULL}, **none = (char **)8;
    int r = execve("/bin/true", a, none);
    printf("%d %s\n", r, strerrorname_np(errno));
    r = execve("/nowhere", a, none);
    printf("%d %s\n", r, strerrorname_np(errno));
    r = execveat(-1, "/bin/true", a, none, 0);
    printf("%d %s\n", r, strerrorname_np(errno));
    r = execve("/bin/true", a, broken);
    printf("%d %s\n", r, strerrorname_np(errno));
    r = execve((char *)8, a, environ);
    printf("%d %s\n", r, strerrorname_np(errno));
    environ = none;
    r = execv("/bin/true", a);
    printf("%d %s\n", r, strerrorname_np(errno));
}

static long past_libc(long n, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

int main(int argc, char **argv)
{
    char line[4096], *what = argv[1];
    if (!strcmp(what, "env")) {
        char *e[] = {"Z=1", "A=1", "A=2", "noequal", "=x", "LD_PRELOAD=", "PATH=/bin:/usr/bin", NULL};
        execve(argv[2], argv + 2, e);
        return 1;
    } else if (!strcmp(what, "start")) {
        execvp(argv[2], argv + 2);
        return 1;
    } else if (!strcmp(what, "bad")) {
        bad();
    } else if (!strcmp(what, "shell")) {
        int status = system(argv[2]);
        printf("system: %x\n", status);
        fflush(stdout);
        FILE *f = popen(argv[2], "r");
        while (fgets(line, sizeof line, f))
            fputs(line, stdout);
        printf("popen: %x\n", pclose(f));
    } else if (!strcmp(what, "raw")) {
        long pid = past_libc(SYS_fork, 0, 0, 0);
        if (!pid) {
            past_libc(SYS_execve, (long)argv[2], (long)(argv + 2), (long)environ);
            _exit(9);
        }
        syscall(SYS_wait4, pid, NULL, 0, NULL);
        lock(NULL);
    } else if (!strcmp(what, "daemon")) {
        if (fork())
            return 0;
        setsid();
        if (fork())
            return 0;
        for (int i = 0; i < 3; i++)
            close(i);
        usleep(400000);
        lock(NULL);
        close(open(argv[2], O_CREAT | O_WRONLY, 0600));
    } else if (!strcmp(what, "traced")) {
        signal(SIGCHLD, SIG_DFL);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGCHLD);
        return 5;
    } else if (!strcmp(what, "forks")) {
        forks(atoi(argv[2]));
    }
    return 0;
}
