/* seccomp HOW [first|starts]: restricts itself, then uses locks. With `first` it has used them before; with `starts` it starts
 * itself again, with HOW `again` (nothing more), before it ends.
 *   kill-gettid    gettid kills the process
 *   errno-gettid   gettid fails with EPERM
 *   kill-open      open kills the process (libc opens files by openat)
 *   sandbox        only what the rest of this program needs; everything else kills
 *   strict         only read, write, exit and sigreturn
 *   notsc          rdtsc raises SIGSEGV
 *   child-notsc    the same in a forked child */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static sem_t s;
static long n, written;

static void locks(void) {
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&m);
        n++;
        pthread_mutex_unlock(&m);
        pthread_rwlock_rdlock(&rw);
        pthread_rwlock_unlock(&rw);
        pthread_rwlock_wrlock(&rw);
        written++;
        pthread_rwlock_unlock(&rw);
        sem_post(&s);
        sem_wait(&s);
    }
}

static void *thread(void *p) {
    locks();
    pthread_mutex_lock(&m);
    n += 1000000;
    pthread_cond_broadcast(&c);
    pthread_mutex_unlock(&m);
    return p;
}

static int filter(unsigned call, unsigned verdict) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, verdict),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* The calls that threads, locks and the end of this program need. */
static int sandbox(void) {
    const unsigned calls[] = {SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_futex, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_brk,
        SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_rseq, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_madvise, SYS_getrandom};
    enum { N = sizeof calls / sizeof *calls };
    struct sock_filter rules[N + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (int i = 0; i < N; i++) rules[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], N - i, 0);
    rules[1 + N] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    rules[2 + N] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {N + 3, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    sem_init(&s, 0, 0);
    int starts = argc > 2 && !strcmp(argv[2], "starts");
    if (argc > 2 && !starts) locks();
    int failed = 1, threads = 1;
    if (!strcmp(how, "kill-gettid")) failed = filter(SYS_gettid, SECCOMP_RET_KILL_PROCESS);
    if (!strcmp(how, "errno-gettid")) failed = filter(SYS_gettid, SECCOMP_RET_ERRNO | EPERM);
    if (!strcmp(how, "kill-open")) failed = filter(SYS_open, SECCOMP_RET_KILL_PROCESS);
    if (!strcmp(how, "sandbox")) failed = sandbox();
    if (!strcmp(how, "strict")) failed = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT), threads = 0;
    if (!strcmp(how, "notsc")) failed = prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    if (!strcmp(how, "child-notsc")) {
        pid_t child = fork();
        int status;
        if (child) return waitpid(child, &status, 0) != child || status ? 8 : 0;
        failed = prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    }
    if (!strcmp(how, "again")) failed = 0;
    if (failed) return perror("seccomp: not possible"), 77;
    locks();
    if (threads) {
        pthread_t t[3];
        for (int i = 0; i < 3; i++)
            if (pthread_create(&t[i], 0, thread, 0)) return 3;
        pthread_mutex_lock(&m);
        while (n < 3000000) pthread_cond_wait(&c, &m);
        pthread_mutex_unlock(&m);
        for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    }
    if (starts) {
        char *args[] = {argv[0], "again", 0};
        pid_t child;
        int status;
        if (posix_spawn(&child, "/proc/self/exe", 0, 0, args, environ)) return 6;
        if (waitpid(child, &status, 0) != child || status) return 7;
    }
    char line[64];
    int length = snprintf(line, sizeof line, "sum %ld %ld\n", n, written);
    if (write(1, line, length) != length) return 4;
    /* Not exit_group: strict mode kills for it. */
    syscall(SYS_exit, 0);
    return 5;
}
