/* Facilities of the kernel that see or forbid what an agent would do.
   also: locker.c
   start seccomp_kill: "$@" ./kernel seccomp
   start seccomp_strict: "$@" ./kernel strict
   start dumpable: "$@" ./kernel dumpable
   start no_new_privileges: "$@" ./kernel no_new
   start setuid: [ $(id -u) = 0 ] || exit 0; chmod 755 .; "$@" ./kernel setuid
   start setuid_thread: [ $(id -u) = 0 ] || exit 0; "$@" ./kernel setuid_thread
   start io_uring: "$@" ./kernel io_uring
   start rseq: "$@" ./kernel rseq
   start robust: "$@" ./kernel robust
   start namespaces: "$@" ./kernel unshare
   start scheduling: "$@" ./kernel scheduling
   start tsc: "$@" ./kernel tsc
   start syscall_dispatch: "$@" ./kernel dispatch
   start name: "$@" ./kernel name
   start cancel: "$@" ./kernel cancel
   start proc: "$@" ./kernel proc
   cannot proc: all /proc/self/environ shows what the kernel was given, whatever is removed later
   start chroot: [ $(id -u) = 0 ] || exit 0; "$@" ./kernel chroot
   limit: 20 */
#include "around.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void *locks(void *x)
{
    lock(1000);
    return x;
}
static void *forever(void *x)
{
    for (;;) {
        pthread_mutex_lock(&around_lock);
        pthread_mutex_unlock(&around_lock);
        usleep(100);
    }
}
static void threads(void)
{
    pthread_t t;
    for (int i = 0; i < 3; i++)
        if (!pthread_create(&t, NULL, locks, NULL))
            pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
    char *what = argv[1], text[64] = "";
    pthread_t t;
    if (strcmp(what, "seccomp"))
        lock(5);
    if (!strcmp(what, "seccomp")) {
        /* All that glibc needs for threads and output; everything else kills. */
        static const int fine[] = {SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_brk, SYS_futex, SYS_clone, SYS_clone3, SYS_set_robust_list,
                                   SYS_rseq, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_rt_sigreturn, SYS_madvise, SYS_newfstatat, SYS_fstat, SYS_gettid, SYS_sched_yield, SYS_set_tid_address, SYS_getrandom, SYS_prlimit64, SYS_sched_getaffinity, SYS_getpid};
        enum { N = sizeof fine / sizeof *fine };
        struct sock_filter f[N * 2 + 2] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
        int n = 1;
        for (int i = 0; i < N; i++) {
            f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, fine[i], 0, 1);
            f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        }
        f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
        struct sock_fprog p = {n, f};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
        threads();
        puts("alive");
        fflush(stdout);
        return 3;
    } else if (!strcmp(what, "strict")) {
        puts("strict");
        fflush(stdout);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        for (int i = 0; i < 200000; i++)
            lock(1);
        syscall(SYS_exit, 4);
    } else if (!strcmp(what, "dumpable")) {
        prctl(PR_SET_DUMPABLE, 0);
        threads();
        printf("%x\n", system("./locker"));
    } else if (!strcmp(what, "no_new")) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        printf("%x\n", system("./locker"));
    } else if (!strcmp(what, "setuid")) {
        setgid(65534);
        setuid(65534);
        threads();
        printf("%x\n", system("./locker"));
    } else if (!strcmp(what, "setuid_thread")) {
        pthread_create(&t, NULL, forever, NULL);
        for (int i = 0; i < 100; i++)
            seteuid(i % 2 ? 65534 : 0);
        setuid(65534);
        pthread_cancel(t);
        pthread_join(t, NULL);
    } else if (!strcmp(what, "io_uring")) {
        char params[120] = "";
        int f = syscall(SYS_io_uring_setup, 8, params);
        printf("%d\n", f < 0 ? -errno : f);
        threads();
    } else if (!strcmp(what, "rseq")) {
        errno = 0;
        printf("%ld %d\n", syscall(SYS_rseq, NULL, 32, 0, 0x53053053), errno);
    } else if (!strcmp(what, "robust")) {
        pthread_mutexattr_t a;
        pthread_mutex_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pthread_mutexattr_init(&a);
        pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
        pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
        pthread_mutex_init(m, &a);
        if (!fork()) {
            pthread_mutex_lock(m);
            _exit(0);
        }
        wait(NULL);
        printf("%d ", pthread_mutex_lock(m));
        printf("%d ", pthread_mutex_consistent(m));
        printf("%d ", pthread_mutex_lock(m));
        printf("%d ", pthread_mutex_unlock(m));
        printf("%d\n", pthread_mutex_unlock(m));
    } else if (!strcmp(what, "unshare")) {
        printf("%d\n", unshare(CLONE_FILES | CLONE_FS));
        printf("%d\n", getuid() ? 0 : unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET));
        printf("%x\n", system("./locker"));
    } else if (!strcmp(what, "scheduling")) {
        struct sched_param p = {5};
        printf("%d\n", sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}));
        printf("%d\n", getuid() ? 0 : sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &p));
        threads();
    } else if (!strcmp(what, "tsc")) {
        fflush(stdout);
        prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
        for (int i = 0; i < 100; i++)
            syscall(SYS_getpid), lock(1);
        prctl(PR_SET_TSC, PR_TSC_ENABLE);
        puts("alive");
    } else if (!strcmp(what, "dispatch")) {
        static char selector;
        printf("%d\n", prctl(59, 1, 0, 0, &selector));
        threads();
    } else if (!strcmp(what, "name")) {
        pthread_setname_np(pthread_self(), "a new name");
        pthread_getname_np(pthread_self(), text, sizeof text);
        puts(text);
        int n = 0;
        FILE *f = fopen("/proc/self/cmdline", "r");
        while ((n = fgetc(f)) > 0)
            putchar(n);
        fclose(f);
        readlink("/proc/self/exe", text, sizeof text - 1);
        puts(text[0] == '/' ? " a path" : " none");
    } else if (!strcmp(what, "cancel")) {
        void *r;
        for (int i = 0; i < 20; i++) {
            pthread_create(&t, NULL, forever, NULL);
            usleep(500);
            pthread_cancel(t);
            pthread_join(t, &r);
            if (r != PTHREAD_CANCELED)
                puts("not cancelled");
        }
    } else if (!strcmp(what, "proc")) {
        static char all[1 << 16];
        int f = open("/proc/self/environ", O_RDONLY), n = read(f, all, sizeof all), bad = 0;
        close(f);
        for (char *c = all; c < all + n; c += strlen(c) + 1)
            if (strstr(c, "LD_PRELOAD") || strstr(c, "DOORBELL_S") || !*c)
                bad++, printf("%.30s\n", c);
        printf("foreign entries of /proc/self/environ: %d\n", bad);
    } else if (!strcmp(what, "chroot")) {
        mkdir("empty", 0755);
        printf("%d\n", chroot("empty"));
        chdir("/");
        threads();
        fflush(stdout);
        _exit(3);
    }
    around(stdout);
    lock(5);
    return 3;
}
