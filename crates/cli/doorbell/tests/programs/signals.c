/* A library of programs that crash, or handle signals, in one way each. A test calls `scenario` in a process whose doorbells may be
 * tapped; `ring` rings one. Its output, and how the process ends, must not depend on the tap. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void (*action)(int, siginfo_t *, void *);
extern void (*__sysv_signal(int, void (*)(int)))(int);

static sigjmp_buf back;
static volatile int seen, depth;
static char stack[1 << 16];

static void say(const char *what, long n) { dprintf(1, "program: %s %ld\n", what, n); }

static int on_other_stack(void) {
    char here;
    return &here >= stack && &here < stack + sizeof stack;
}

static void other_stack(void) {
    stack_t s = {.ss_sp = stack, .ss_size = sizeof stack};
    if (sigaltstack(&s, 0)) say("sigaltstack", errno);
}

static int is_blocked(int signal) {
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, 0, &now);
    return sigismember(&now, signal);
}

static void set(int signal, action handler, int flags) {
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    sigaddset(&a.sa_mask, SIGUSR1);
    sigaction(signal, &a, 0);
}

static void mask(int how, int signal) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, signal);
    pthread_sigmask(how, &s, 0);
}

/* Prints the signal, and skips the fault. */
static void recover(int signal, siginfo_t *info, void *context) {
    (void)context;
    say("signal", signal);
    say("code", info->si_code);
    if (info->si_code > 0) say("address", (long)info->si_addr);
    say("SIGSEGV blocked inside", is_blocked(SIGSEGV));
    say("SIGUSR1 blocked inside", is_blocked(SIGUSR1));
    say("on the other stack", on_other_stack());
    siglongjmp(back, 1);
}

static void open_page(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    seen++;
    mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}

static void crash_again(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    say("crash handler", ++depth);
    if (depth > 20) _exit(98);
    *(volatile int *)8 = 1;
}

static void leave(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    say("on the other stack", on_other_stack());
    _exit(9);
}

static void returns(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    say("handler of", signal);
}

static void plain(int signal) {
    (void)signal;
    seen++;
    siglongjmp(back, 1);
}

static void deeper(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    say("depth", ++depth);
    if (depth < 4) *(volatile int *)8 = 1;
    siglongjmp(back, 1);
}

/* Unblocks its own signal, and crashes again, three times. */
static void unblocks(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    say("SIGSEGV blocked inside", is_blocked(SIGSEGV));
    mask(SIG_UNBLOCK, signal);
    say("SIGSEGV blocked inside", is_blocked(SIGSEGV));
    if (++depth < 4) *(volatile int *)8 = 1;
    siglongjmp(back, 1);
}

/* Sends itself its signal, which is delivered after it has returned. */
static void raises(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    int mine = ++depth;
    say("begin", mine);
    if (depth < 3) raise(signal);
    say("end", mine);
}

static void returns_plain(int signal) { say("handler of", signal); }

static char *page(void) { return mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

#pragma GCC diagnostic ignored "-Winfinite-recursion"
static int __attribute__((noinline)) overflow(int n) {
    /* Small, so that the guard page is hit and no frame, not even the kernel's, reaches past it into other memory. */
    volatile char room[128];
    room[0] = n;
    return overflow(n + 1) + room[0];
}

static const char *const WILD[] = {"null-read", "null-write", "wild-read", "wild-write", "wild-high", "fixed-page", "jump", 0};

static void wild(const char *how) {
    volatile uintptr_t at = 0;
    if (!strcmp(how, "null-read")) (void)*(volatile int *)at;
    if (!strcmp(how, "null-write")) *(volatile int *)at = 1;
    at = 0xdead000000000090;
    if (!strcmp(how, "wild-read")) (void)*(volatile int *)at;
    if (!strcmp(how, "wild-write")) *(volatile int *)at = 1;
    at = 0x8000000000000000;
    if (!strcmp(how, "wild-high")) *(volatile uint32_t *)at = 1;
    at = 0x10000;
    if (!strcmp(how, "fixed-page")) *(volatile int *)at = 1;
    if (!strcmp(how, "jump")) ((void (*)(void))at)();
}

static void *thread(void *p) {
    say("SIGSEGV blocked in a thread", is_blocked(SIGSEGV));
    say("SIGTRAP blocked in a thread", is_blocked(SIGTRAP));
    return p;
}

static void *thread_rings(void *ring) {
    ((void (*)(void))ring)();
    return thread(ring);
}

static void *kills(void *p) {
    mask(SIG_BLOCK, SIGTRAP);
    usleep(50000);
    kill(getpid(), SIGTRAP);
    return p;
}

/* What a program inherits if it is started now. */
static void inherited_by_exec(void) {
    pid_t child = fork();
    if (!child) {
        execl(getenv("INHERITED"), "inherited", (char *)0);
        _exit(97);
    }
    int status;
    waitpid(child, &status, 0);
    say("ended", status);
}

/* Crashes, or prints what happens. Returns unless the scenario ends the process. */
int scenario(const char *name, void (*ring)(void)) {
    struct sigaction old;
    sigaction(SIGSEGV, 0, &old);
    stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, 0);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    signal(SIGTRAP, SIG_DFL);

    if (!strncmp(name, "dies-", 5)) {
        ring();
        wild(name + 5);
        return 1;
    }
    if (!strcmp(name, "recovers")) {
        set(SIGSEGV, recover, 0);
        for (volatile int n = 0; WILD[n]; n++)
            for (volatile int again = 0; again < 2; again++) {
                if (!sigsetjmp(back, 1)) {
                    ring();
                    wild(WILD[n]);
                    say("not reached", n);
                }
                say("SIGSEGV blocked after", is_blocked(SIGSEGV));
            }
    } else if (!strcmp(name, "garbage-collector")) {
        set(SIGSEGV, open_page, 0);
        for (int n = 0; n < 20; n++) {
            ring();
            char *p = page();
            p[n] = 1;
            say("handled", seen);
        }
    } else if (!strcmp(name, "overflow")) {
        ring();
        return overflow(0);
    } else if (!strcmp(name, "overflow-on-other-stack")) {
        other_stack();
        set(SIGSEGV, leave, SA_ONSTACK);
        ring();
        return overflow(0);
    } else if (!strcmp(name, "overflow-without-other-stack")) {
        other_stack();
        set(SIGSEGV, leave, 0);
        ring();
        return overflow(0);
    } else if (!strcmp(name, "crash-in-handler")) {
        set(SIGSEGV, crash_again, 0);
        ring();
        wild("null-write");
    } else if (!strcmp(name, "crash-in-handler-nodefer")) {
        set(SIGSEGV, deeper, SA_NODEFER);
        if (!sigsetjmp(back, 1)) {
            ring();
            wild("null-write");
        }
        say("deep", depth);
    } else if (!strcmp(name, "stacks")) {
        other_stack();
        for (volatile int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
            set(SIGSEGV, recover, flags);
            if (!sigsetjmp(back, 1)) {
                ring();
                wild("null-write");
            }
            set(SIGTRAP, returns, flags);
            __asm__ volatile("int3");
        }
    } else if (!strcmp(name, "once")) {
        set(SIGSEGV, returns, SA_RESETHAND);
        ring();
        wild("null-write"); /* again, by default */
    } else if (!strcmp(name, "blocked-fault")) {
        set(SIGSEGV, returns, 0);
        mask(SIG_BLOCK, SIGSEGV);
        ring();
        wild("null-write"); /* ends the process, handler or not */
    } else if (!strcmp(name, "trap")) {
        ring();
        __asm__ volatile("int3");
    } else if (!strcmp(name, "raise")) {
        set(SIGSEGV, recover, 0);
        ring();
        if (!sigsetjmp(back, 1)) raise(SIGSEGV);
        if (!sigsetjmp(back, 1)) pthread_kill(pthread_self(), SIGSEGV);
        signal(SIGSEGV, SIG_IGN);
        raise(SIGSEGV);
        say("ignored", 1);
    } else if (!strcmp(name, "pending")) {
        sigset_t both, waiting;
        siginfo_t info;
        struct timespec second = {1, 0};
        mask(SIG_BLOCK, SIGSEGV);
        mask(SIG_BLOCK, SIGTRAP);
        ring();
        raise(SIGSEGV);
        raise(SIGTRAP);
        sigpending(&waiting);
        say("SIGSEGV pending", sigismember(&waiting, SIGSEGV));
        say("SIGTRAP pending", sigismember(&waiting, SIGTRAP));
        sigemptyset(&both);
        sigaddset(&both, SIGSEGV);
        sigaddset(&both, SIGTRAP);
        for (int i = 0; i < 2; i++) say("waited for", sigtimedwait(&both, &info, &second));
        sigpending(&waiting);
        say("SIGSEGV pending", sigismember(&waiting, SIGSEGV));
    } else if (!strcmp(name, "vfork")) {
        set(SIGSEGV, open_page, 0);
        ring();
        pid_t child = vfork();
        if (!child) {
            signal(SIGSEGV, SIG_DFL);
            struct sigaction a = {.sa_handler = SIG_DFL};
            sigaction(SIGSEGV, &a, 0);
            mask(SIG_BLOCK, SIGSEGV);
            mask(SIG_BLOCK, SIGTRAP);
            _exit(0);
        }
        waitpid(child, 0, 0);
        sigaction(SIGSEGV, 0, &old);
        say("the handler is still there", old.sa_sigaction == open_page);
        say("SIGSEGV blocked", is_blocked(SIGSEGV));
        say("SIGTRAP blocked", is_blocked(SIGTRAP));
        ring();
        char *p = page();
        p[0] = 1;
        say("handled", seen);
    } else if (!strcmp(name, "inherited")) {
        pthread_t t;
        ring();
        mask(SIG_BLOCK, SIGSEGV);
        mask(SIG_BLOCK, SIGTRAP);
        pthread_create(&t, 0, thread, 0);
        pthread_join(t, 0);
        inherited_by_exec();
        mask(SIG_UNBLOCK, SIGSEGV);
        signal(SIGSEGV, SIG_IGN);
        inherited_by_exec();
    } else if (!strcmp(name, "sysv")) {
        say("default before", __sysv_signal(SIGSEGV, plain) == SIG_DFL);
        ring();
        if (!sigsetjmp(back, 1)) wild("null-write");
        say("handled", seen);
        sigaction(SIGSEGV, 0, &old);
        say("default after", old.sa_handler == SIG_DFL);
        ring();
    } else if (!strcmp(name, "sigset")) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        say("default before", sigset(SIGSEGV, plain) == SIG_DFL);
        ring();
        if (!sigsetjmp(back, 1)) wild("null-write");
        say("handled", seen);
        sigaction(SIGSEGV, 0, &old);
        say("the handler is still there", old.sa_handler == plain);
        say("handler before", sigset(SIGSEGV, SIG_HOLD) == plain);
        say("SIGSEGV blocked", is_blocked(SIGSEGV));
        ring();
        say("held before", sigset(SIGSEGV, plain) == SIG_HOLD);
        say("SIGSEGV blocked", is_blocked(SIGSEGV));
        sighold(SIGSEGV);
        say("SIGSEGV held", is_blocked(SIGSEGV));
        ring();
        sigrelse(SIGSEGV);
        say("SIGSEGV held", is_blocked(SIGSEGV));
        siginterrupt(SIGSEGV, 1);
        sigaction(SIGSEGV, 0, &old);
        say("the handler is still there", old.sa_handler == plain);
        say("restarts", !!(old.sa_flags & SA_RESTART));
        ring();
        if (!sigsetjmp(back, 1)) wild("null-write");
        say("handled", seen);
        sigignore(SIGSEGV);
        sigaction(SIGSEGV, 0, &old);
        say("ignored", old.sa_handler == SIG_IGN);
        ring();
#pragma GCC diagnostic pop
    } else if (!strcmp(name, "late")) {
        /* Every way to install a handler, each after doorbells were rung. */
        typedef void (*handler)(int);
        handler (*ways[])(int, handler) = {signal, ssignal, __sysv_signal};
        for (volatile int n = 0; n < 3; n++) {
            ring();
            ways[n](SIGSEGV, plain);
            ring();
            if (!sigsetjmp(back, 1)) wild("wild-write");
            say("handled", seen);
        }
    } else if (!strcmp(name, "unblocks-itself")) {
        set(SIGSEGV, unblocks, 0);
        if (!sigsetjmp(back, 1)) {
            ring();
            wild("null-write");
        }
        say("deep", depth);
        say("SIGSEGV blocked after", is_blocked(SIGSEGV));
    } else if (!strcmp(name, "sent-inside")) {
        set(SIGTRAP, raises, 0);
        ring();
        __asm__ volatile("int3");
        say("depth", depth);
        say("SIGTRAP blocked after", is_blocked(SIGTRAP));
    } else if (!strcmp(name, "thread-mask")) {
        pthread_t t;
        pthread_attr_t a;
        sigset_t s;
        sigemptyset(&s);
        sigaddset(&s, SIGTRAP);
        pthread_attr_init(&a);
        pthread_attr_setsigmask_np(&a, &s);
        ring();
        pthread_create(&t, &a, thread_rings, ring);
        pthread_join(t, 0);
        mask(SIG_BLOCK, SIGSEGV);
        pthread_create(&t, 0, thread_rings, ring);
        pthread_join(t, 0);
    } else if (!strcmp(name, "waits")) {
        pthread_t t;
        sigset_t s;
        int got = 0;
        sigemptyset(&s);
        sigaddset(&s, SIGTRAP);
        mask(SIG_BLOCK, SIGTRAP);
        ring();
        pthread_create(&t, 0, kills, 0);
        say("waited", sigwait(&s, &got));
        say("signal", got);
        pthread_join(t, 0);
        ring();
        set(SIGTRAP, returns, 0);
        raise(SIGTRAP);
        kill(getpid(), SIGTRAP);
        sigemptyset(&s);
        say("suspended", sigsuspend(&s));
        say("because", errno == EINTR);
        say("SIGTRAP blocked", is_blocked(SIGTRAP));
        pthread_create(&t, 0, kills, 0);
        say("suspended", sigsuspend(&s));
        pthread_join(t, 0);
    } else if (!strcmp(name, "old-masks")) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        ring();
        say("before", sigblock(1 << (SIGSEGV - 1) | 1 << (SIGUSR2 - 1)));
        say("SIGSEGV blocked", is_blocked(SIGSEGV));
        ring();
        say("then", sigsetmask(1 << (SIGTRAP - 1)));
        say("SIGSEGV blocked", is_blocked(SIGSEGV));
        say("now", siggetmask());
#pragma GCC diagnostic pop
    } else if (!strcmp(name, "spawn")) {
        extern char **environ;
        char *argv[] = {"inherited", 0};
        pid_t child;
        int status = -1;
        mask(SIG_BLOCK, SIGSEGV);
        ring();
        int spawned = posix_spawn(&child, getenv("INHERITED"), 0, 0, argv, environ);
        waitpid(child, &status, 0);
        /* Not before the child has ended: either of them may be the first to write. */
        say("spawned", spawned);
        say("ended", status);
        say("SIGSEGV blocked", is_blocked(SIGSEGV));
    } else if (!strcmp(name, "actions")) {
        struct sigaction a = {.sa_sigaction = returns, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigfillset(&a.sa_mask);
        ring();
        sigaction(SIGTRAP, &a, 0);
        memset(&old, 0, sizeof old);
        say("asked", sigaction(SIGTRAP, 0, &old));
        say("flags", old.sa_flags);
        say("SIGKILL in the mask", sigismember(&old.sa_mask, SIGKILL));
        say("SIGTERM in the mask", sigismember(&old.sa_mask, SIGTERM));
        signal(SIGTRAP, returns_plain);
        sigaction(SIGTRAP, 0, &old);
        say("flags", old.sa_flags);
        say("SIGTRAP in the mask", sigismember(&old.sa_mask, SIGTRAP));
        __sysv_signal(SIGTRAP, returns_plain);
        sigaction(SIGTRAP, 0, &old);
        say("flags", old.sa_flags);
        say("SIGTRAP in the mask", sigismember(&old.sa_mask, SIGTRAP));
    } else {
        say("no such scenario", 0);
        return 2;
    }
    ring();
    say("went on", 1);
    return 0;
}
