/* Processes that come and go in unusual ways.
   also: locker.c
   start vfork: "$@" ./processes vfork
   start vfork_exit: "$@" ./processes vfork_exit
   start clone3: "$@" ./processes clone3
   start clone_vm: "$@" ./processes clone_vm
   start constructor: "$@" ./processes constructor
   start exec_in_thread: "$@" ./processes exec_in_thread
   start thread_leaves: "$@" ./processes thread_leaves
   start fork_in_thread: "$@" ./processes fork_in_thread
   start fork_in_handler: "$@" ./processes fork_in_handler
   start daemon: "$@" ./processes daemon; for i in 1 2 3 4 5 6 7 8 9; do [ -e done ] || sleep 0.2; done; cat done
   start exits: "$@" ./processes exits
   start quick_exit: "$@" ./processes quick_exit
   start pidfd: "$@" ./processes pidfd
   start chain: "$@" ./processes chain 30
   start long_argv: "$@" ./processes long_argv
   start big_environment: "$@" ./processes big_environment
   start reaper: "$@" ./processes reaper
   start parent_death: "$@" ./processes parent_death
   start ptrace: "$@" ./processes ptrace
   start wait_any: "$@" ./processes wait_any
   start at_fork: "$@" ./processes at_fork
   limit: 20 */
#include "around.h"
#include <linux/sched.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static void *runs(void *x)
{
    execv("./locker", (char *[]){"locker", NULL});
    return x;
}
static void *forks(void *x)
{
    int s;
    /* (A lock of its own: the other thread may hold that one as this one forks.) */
    static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pid_t p = fork();
    if (!p) {
        for (int i = 0; i < 100; i++)
            pthread_mutex_lock(&own), pthread_mutex_unlock(&own);
        exit(5);
    }
    waitpid(p, &s, 0);
    printf("child %x\n", s);
    return x;
}
static int child(void *x)
{
    lock(100);
    syscall(SYS_exit, 4);
    return 4;
}
static void handler(int s) { forks(NULL); }
static void *sleeps(void *x)
{
    usleep(200000);
    puts("the other thread");
    exit(6);
}
static void at_exit(void) { lock(3), puts("at exit"); }
static void before(void) { lock(1), puts("before"); }
static void after(void) { lock(1), puts("after"), fflush(stdout); }
__attribute__((constructor)) static void early(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "constructor")) {
        forks(NULL);
        system("./locker");
    }
}

int main(int argc, char **argv)
{
    char *what = argv[1];
    int status = 0;
    pthread_t t;
    pid_t p;
    setvbuf(stdout, NULL, _IOLBF, 0);
    lock(5);
    if (!strcmp(what, "vfork")) {
        if (!(p = vfork()))
            execv("./locker", (char *[]){"locker", NULL}), _exit(9);
        waitpid(p, &status, 0);
    } else if (!strcmp(what, "vfork_exit")) {
        for (int i = 0; i < 200; i++) {
            if (!(p = vfork())) {
                lock(1);
                _exit(i % 100);
            }
            waitpid(p, &status, 0);
        }
        lock(5);
    } else if (!strcmp(what, "clone3")) {
        struct clone_args a = {.exit_signal = SIGCHLD};
        if (!(p = syscall(SYS_clone3, &a, sizeof a))) {
            lock(100);
            execv("./locker", (char *[]){"locker", NULL});
        }
        waitpid(p, &status, 0);
    } else if (!strcmp(what, "clone_vm")) {
        static char stack[65536] __attribute__((aligned(16)));
        p = clone(child, stack + sizeof stack, CLONE_VM | CLONE_FILES | SIGCHLD, NULL);
        waitpid(p, &status, 0);
    } else if (!strcmp(what, "exec_in_thread")) {
        pthread_create(&t, NULL, runs, NULL);
        pthread_join(t, NULL);
    } else if (!strcmp(what, "thread_leaves")) {
        pthread_create(&t, NULL, sleeps, NULL);
        pthread_exit(NULL);
    } else if (!strcmp(what, "fork_in_thread")) {
        for (int i = 0; i < 20; i++) {
            pthread_create(&t, NULL, forks, NULL);
            lock(1000);
            pthread_join(t, NULL);
        }
    } else if (!strcmp(what, "fork_in_handler")) {
        signal(SIGUSR1, handler);
        for (int i = 0; i < 10; i++)
            lock(1), raise(SIGUSR1);
    } else if (!strcmp(what, "daemon")) {
        daemon(1, 0);
        lock(100);
        usleep(300000);
        FILE *f = fopen("d", "w");
        around(f);
        fclose(f);
        rename("d", "done");
    } else if (!strcmp(what, "exits")) {
        atexit(at_exit);
        on_exit((void *)at_exit, NULL);
        return 77;
    } else if (!strcmp(what, "quick_exit")) {
        at_quick_exit(at_exit);
        quick_exit(78);
    } else if (!strcmp(what, "pidfd")) {
        int fd = -1;
        struct clone_args a = {.flags = CLONE_PIDFD, .pidfd = (unsigned long)&fd, .exit_signal = SIGCHLD};
        if (!(p = syscall(SYS_clone3, &a, sizeof a)))
            exit(8);
        siginfo_t i;
        printf("descriptor %d\n", fd);
        printf("%d ", waitid(P_PIDFD, fd, &i, WEXITED));
        printf("%d\n", i.si_status);
    } else if (!strcmp(what, "chain")) {
        int n = atoi(argv[2]);
        char text[20];
        sprintf(text, "%d", n - 1);
        if (n)
            execl("/proc/self/exe", argv[0], "chain", text, NULL);
        around(stdout);
    } else if (!strcmp(what, "long_argv")) {
        static char *a[100002], word[16] = "123456789abc";
        for (int i = 1; i <= 100000; i++)
            a[i] = word;
        a[0] = "./locker";
        if (!(p = fork()))
            execv(a[0], a), perror("exec"), _exit(9);
        waitpid(p, &status, 0);
    } else if (!strcmp(what, "big_environment")) {
        static char big[127 << 10];
        memset(big, 'x', sizeof big - 1);
        char name[8];
        for (int i = 0; i < 14; i++)
            sprintf(name, "BIG%d", i), setenv(name, big, 1);
        int r = system("./locker");
        printf("%x\n", r);
    } else if (!strcmp(what, "reaper")) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (!fork()) {
            if (!fork()) {
                usleep(100000);
                _exit(7);
            }
            _exit(0);
        }
        for (int n = 0; wait(&status) > 0; n++)
            printf("%x\n", status);
    } else if (!strcmp(what, "parent_death")) {
        int q[2];
        pipe(q);
        if (!(p = fork())) {
            if (!fork()) {
                prctl(PR_SET_PDEATHSIG, SIGUSR1);
                signal(SIGUSR1, SIG_DFL);
                write(q[1], "x", 1);
                sleep(5);
                puts("outlives its parent");
                _exit(0);
            }
            char c;
            read(q[0], &c, 1);
            _exit(0);
        }
        waitpid(p, &status, 0);
    } else if (!strcmp(what, "ptrace")) {
        if (!(p = fork())) {
            ptrace(PTRACE_TRACEME, 0, 0, 0);
            raise(SIGSTOP);
            lock(3);
            execv("./locker", (char *[]){"locker", NULL});
        }
        int stops = 0;
        waitpid(p, &status, 0);
        ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
        for (int sig = 0; ptrace(PTRACE_CONT, p, 0, sig) == 0 && waitpid(p, &status, 0) == p && WIFSTOPPED(status);) {
            printf("stop %x\n", status >> 8);
            stops++, sig = status >> 16 ? 0 : WSTOPSIG(status);
        }
        printf("stops %d\n", stops);
    } else if (!strcmp(what, "wait_any")) {
        system("./locker");
        printf("%d %d\n", wait(NULL), errno);
        signal(SIGCHLD, SIG_IGN);
        printf("%x %d\n", system("./locker"), errno);
        FILE *f = popen("./locker", "r");
        char line[200];
        while (fgets(line, sizeof line, f))
            fputs(line, stdout);
        printf("%d %d\n", pclose(f), errno);
    } else if (!strcmp(what, "at_fork")) {
        pthread_atfork(before, after, after);
        forks(NULL);
        system("./locker");
    }
    printf("status %x\n", status);
    lock(5);
    return 3;
}
