/* What a program sees of its surroundings: lines that begin with `~`. Include it first. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Without SA_RESTORER, which is libc's. */
static void around_signals(FILE *to)
{
    struct sigaction a;
    stack_t s;
    for (int i = 1; i < 65; i++)
        if (!sigaction(i, NULL, &a) && (a.sa_handler != SIG_DFL || a.sa_flags & ~0x4000000))
            fprintf(to, "~ signal %d: %s, flags %x\n", i, a.sa_handler == SIG_IGN ? "ignored" : a.sa_handler == SIG_DFL ? "default" : "handled", a.sa_flags & ~0x4000000);
    sigaltstack(NULL, &s);
    fprintf(to, "~ alternate stack: flags %d, %zu bytes\n", s.ss_flags, s.ss_size);
}

static void around_files(FILE *to)
{
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[64], target[512];
        int fd = atoi(e->d_name), n;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (e->d_name[0] == '.' || fd == dirfd(d) || fd == fileno(to) && to != stdout || (n = readlink(path, target, sizeof target - 1)) < 0)
            continue;
        target[n] = 0;
        target[strcspn(target, "[")] = 0; /* pipe:[NUMBER] */
        fprintf(to, "~ descriptor %d: %s, %x, %x\n", fd, target, fcntl(fd, F_GETFD), fcntl(fd, F_GETFL));
    }
    if (d)
        closedir(d);
}

static void around(FILE *to)
{
    int first = errno;
    static const char *facts[] = {"Umask", "Uid", "Gid", "Groups", "VmLck", "Sig", "Shd", "Cap", "NoNewPrivs", "Seccomp", "TracerPid", "Threads", "CoreDumping"};
    char line[4096];
    cpu_set_t cpus;
    struct rlimit r;
    struct itimerval t;
    fprintf(to, "~ errno %d\n", first);
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        for (unsigned i = 0; i < sizeof facts / sizeof *facts; i++)
            if (!strncmp(line, facts[i], strlen(facts[i])) && strncmp(line, "SigQ", 4))
                fprintf(to, "~ %s", line);
    if (f)
        fclose(f);
    for (char **e = environ; e && *e; e++)
        if (strncmp(*e, "WAY=", 4) && strncmp(*e, "_=", 2))
            fprintf(to, "~ environment %s\n", *e);
    around_signals(to);
    around_files(to);
    for (int i = 0; i < 16; i++)
        if (!getrlimit(i, &r))
            fprintf(to, "~ limit %d: %lx %lx\n", i, r.rlim_cur, r.rlim_max);
    fprintf(to, "~ folder %s\n", getcwd(line, sizeof line));
    fprintf(to, "~ name %s, locale %s\n", program_invocation_name, setlocale(LC_ALL, NULL));
    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof cpus, &cpus);
    fprintf(to, "~ CPUs %d, policy %d, nice %d, oom\n", CPU_COUNT(&cpus), sched_getscheduler(0), getpriority(PRIO_PROCESS, 0));
    int reaper = -1, parent = -1;
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    prctl(PR_GET_PDEATHSIG, &parent);
    fprintf(to, "~ dumpable %d, reaper %d, signal of the parent's death %d, timer slack %d, personality %x\n", prctl(PR_GET_DUMPABLE), reaper, parent,
            prctl(PR_GET_TIMERSLACK), personality(0xffffffff));
    if ((f = fopen("/proc/self/coredump_filter", "r"))) {
        if (fgets(line, sizeof line, f))
            fprintf(to, "~ core files %s", line);
        fclose(f);
    }
    for (int i = 0; i < 3; i++) {
        getitimer(i, &t);
        fprintf(to, "~ timer %d: %d\n", i, t.it_value.tv_sec || t.it_value.tv_usec);
    }
    fprintf(to, "~ children %d\n", waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD);
    fflush(to);
}

/* N operations on a lock: what `record` must have, or must say that it lacks. */
static pthread_mutex_t around_lock = PTHREAD_MUTEX_INITIALIZER;
static void lock(int n)
{
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&around_lock);
        pthread_mutex_unlock(&around_lock);
    }
}
