/* Signals of every kind reach their handlers as without doorbell.
   start altstack: "$@" ./signals altstack
   start fault: "$@" ./signals fault
   start trap: "$@" ./signals trap
   start abort: "$@" ./signals abort
   start segv: ulimit -c 0; "$@" ./signals segv
   start blocked_segv: ulimit -c 0; "$@" ./signals blocked_segv
   start blocked_trap: "$@" ./signals blocked_trap
   start real_time: "$@" ./signals real_time
   start timers: "$@" ./signals timers
   start alarm: "$@" ./signals alarm
   start pipe: "$@" ./signals pipe
   start wait: "$@" ./signals wait
   start file: "$@" ./signals file
   start mask: "$@" ./signals mask
   cannot mask: record SIGSEGV and SIGTRAP stay open in the kernel: doorbell's own faults are handled there
   cannot mask: last SIGSEGV and SIGTRAP stay open in the kernel: doorbell's own faults are handled there
   start reset: "$@" ./signals reset
   start in_lock: "$@" ./signals in_lock
   start nested: "$@" ./signals nested
   start bus: "$@" ./signals bus
   start stop: "$@" ./signals stop
   start dies_in_thread: ulimit -c 0; "$@" ./signals dies_in_thread
   start onstack_small: "$@" ./signals onstack_small
   start raw_unmask: "$@" ./signals raw_unmask
   limit: 20 */
#include "around.h"
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <time.h>

static volatile int got, on, value, code;
static sigjmp_buf back;
static char stack[65536];

static void note(int s, siginfo_t *i, void *c)
{
    char here;
    got++, code = i->si_code, value = i->si_value.sival_int;
    on = &here > stack && &here < stack + sizeof stack;
}
static void jump(int s, siginfo_t *i, void *c)
{
    note(s, i, c);
    siglongjmp(back, s);
}
static void locks(int s) { lock(1), got++; }
static void handle(int s, void *f, int flags)
{
    struct sigaction a = {.sa_sigaction = f, .sa_flags = flags | SA_SIGINFO};
    sigaction(s, &a, NULL);
}
static void *waits(void *set)
{
    int s;
    sigwait(set, &s);
    return (void *)(long)s;
}
/* As Go with C: libc blocks all signals before a thread is made, and the thread unblocks them by a system call of its own. */
static void *raw_unmask(void *x)
{
    unsigned long none = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
    if (!sigsetjmp(back, 0))
        *(volatile int *)0 = 1;
    return x;
}
static void *dies(void *x)
{
    *(volatile int *)0 = 1;
    return x;
}

int main(int argc, char **argv)
{
    char *what = argv[1];
    stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
    lock(5);
    if (!strcmp(what, "altstack")) {
        sigaltstack(&alt, NULL);
        handle(SIGUSR1, note, SA_ONSTACK);
        raise(SIGUSR1);
        printf("on it: %d\n", on);
        around(stdout);
    } else if (!strcmp(what, "onstack_small")) {
        alt.ss_size = MINSIGSTKSZ + 1500;
        sigaltstack(&alt, NULL);
        handle(SIGSEGV, jump, SA_ONSTACK);
        if (!sigsetjmp(back, 1))
            *(volatile int *)8 = 1;
        printf("on it: %d\n", on);
    } else if (!strcmp(what, "fault")) {
        handle(SIGSEGV, jump, SA_NODEFER);
        for (int i = 0; i < 1000; i++)
            if (!sigsetjmp(back, 1))
                *(volatile int *)(8L * i) = 1;
        printf("%d, code %d\n", got, code);
        around_signals(stdout);
    } else if (!strcmp(what, "trap")) {
        handle(SIGTRAP, note, 0);
        __asm__ volatile("int3");
        raise(SIGTRAP);
        printf("%d\n", got);
    } else if (!strcmp(what, "abort")) {
        handle(SIGABRT, jump, 0);
        if (!sigsetjmp(back, 1))
            abort();
        printf("%d\n", got);
    } else if (!strcmp(what, "segv")) {
        *(volatile int *)0 = 1;
    } else if (!strcmp(what, "blocked_segv")) {
        sigset_t s;
        sigfillset(&s);
        handle(SIGSEGV, jump, 0);
        sigprocmask(SIG_BLOCK, &s, NULL);
        if (!sigsetjmp(back, 0))
            *(volatile int *)0 = 1; /* The kernel kills it: a blocked fault. */
        printf("survives\n");
    } else if (!strcmp(what, "blocked_trap")) {
        sigset_t s, p;
        sigemptyset(&s);
        sigaddset(&s, SIGTRAP);
        sigaddset(&s, SIGSEGV);
        handle(SIGTRAP, note, 0);
        handle(SIGSEGV, note, 0);
        sigprocmask(SIG_BLOCK, &s, NULL);
        kill(getpid(), SIGTRAP);
        kill(getpid(), SIGSEGV);
        sigpending(&p);
        printf("handled %d, pending %d %d\n", got, sigismember(&p, SIGTRAP), sigismember(&p, SIGSEGV));
        sigprocmask(SIG_UNBLOCK, &s, NULL);
        printf("handled %d\n", got);
    } else if (!strcmp(what, "real_time")) {
        handle(SIGRTMIN, note, 0);
        handle(SIGRTMAX, note, 0);
        for (int i = 0; i < 100; i++)
            sigqueue(getpid(), i % 2 ? SIGRTMIN : SIGRTMAX, (union sigval){.sival_int = i});
        printf("%d, last %d, %d to %d\n", got, value, SIGRTMIN, SIGRTMAX);
    } else if (!strcmp(what, "timers")) {
        timer_t t;
        struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3, .sigev_value.sival_int = 42};
        struct itimerspec at = {{0, 1000000}, {0, 1000000}};
        handle(SIGRTMIN + 3, note, SA_RESTART);
        timer_create(CLOCK_MONOTONIC, &e, &t);
        timer_settime(t, 0, &at, NULL);
        while (got < 50)
            lock(10);
        timer_delete(t);
        printf("%d\n", value);
    } else if (!strcmp(what, "alarm")) {
        handle(SIGALRM, note, 0);
        alarm(1);
        int r = pause();
        printf("%d %d errno %d\n", got, r, errno);
    } else if (!strcmp(what, "pipe")) {
        int p[2];
        pipe(p);
        close(p[0]);
        signal(SIGPIPE, SIG_IGN);
        printf("%zd %d\n", write(p[1], "x", 1), errno);
        fflush(stdout);
        signal(SIGPIPE, SIG_DFL);
        write(p[1], "x", 1);
    } else if (!strcmp(what, "wait")) {
        sigset_t s;
        void *r;
        pthread_t t;
        sigemptyset(&s);
        sigaddset(&s, SIGUSR2);
        pthread_sigmask(SIG_BLOCK, &s, NULL);
        pthread_create(&t, NULL, waits, &s);
        kill(getpid(), SIGUSR2);
        pthread_join(t, &r);
        printf("%ld\n", (long)r);
    } else if (!strcmp(what, "file")) {
        sigset_t s;
        struct signalfd_siginfo i;
        sigemptyset(&s);
        sigaddset(&s, SIGTERM);
        sigprocmask(SIG_BLOCK, &s, NULL);
        int f = signalfd(-1, &s, 0);
        kill(getpid(), SIGTERM);
        read(f, &i, sizeof i);
        printf("%d, descriptor %d\n", i.ssi_signo, f);
    } else if (!strcmp(what, "mask")) {
        sigset_t s, o;
        sigfillset(&s);
        printf("%d", sigprocmask(SIG_SETMASK, &s, NULL));
        sigprocmask(SIG_SETMASK, NULL, &o);
        for (int i = 1; i < 65; i++)
            printf(" %d", sigismember(&o, i));
        puts("");
        around(stdout);
    } else if (!strcmp(what, "reset")) {
        handle(SIGUSR1, note, SA_RESETHAND);
        raise(SIGUSR1);
        around_signals(stdout);
        handle(SIGSEGV, jump, SA_RESETHAND);
        if (!sigsetjmp(back, 1))
            *(volatile int *)0 = 1;
        around_signals(stdout);
    } else if (!strcmp(what, "in_lock")) {
        signal(SIGUSR1, locks);
        for (int i = 0; i < 1000; i++)
            lock(1), raise(SIGUSR1);
        printf("%d\n", got);
    } else if (!strcmp(what, "nested")) {
        handle(SIGSEGV, jump, SA_NODEFER | SA_ONSTACK);
        sigaltstack(&alt, NULL);
        if (!sigsetjmp(back, 1))
            raise(SIGSEGV);
        printf("%d %d code %d\n", got, on, code);
    } else if (!strcmp(what, "bus")) {
        int f = memfd_create("x", 0);
        char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, f, 0);
        handle(SIGBUS, jump, 0);
        if (!sigsetjmp(back, 1))
            *(volatile char *)p;
        printf("%d code %d\n", got, code);
    } else if (!strcmp(what, "stop")) {
        int s;
        pid_t p = fork();
        if (!p) {
            raise(SIGSTOP);
            _exit(4);
        }
        waitpid(p, &s, WUNTRACED);
        printf("%x ", s);
        kill(p, SIGCONT);
        waitpid(p, &s, 0);
        printf("%x\n", s);
    } else if (!strcmp(what, "raw_unmask")) {
        sigset_t all, before;
        pthread_t t;
        handle(SIGSEGV, jump, SA_NODEFER);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_create(&t, NULL, raw_unmask, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_join(t, NULL);
        printf("%d\n", got);
    } else if (!strcmp(what, "dies_in_thread")) {
        pthread_t t;
        pthread_create(&t, NULL, dies, NULL);
        pthread_join(t, NULL);
    }
    lock(5);
    return 3;
}
