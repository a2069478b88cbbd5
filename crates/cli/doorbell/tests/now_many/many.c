/* Programs for many looks, with many threads, and with many processes. Its argument names one; it prints a line when all wait. */
#define _GNU_SOURCE
#include "../inside.h"
#include <pthread.h>
#include <string.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuEventRecord(void *, void *);
int cuStreamWaitEvent(void *, void *, unsigned);
int cuStreamSynchronize(void *);

enum { THREADS = 5000, RANKS = 64 };
static pthread_mutex_t locks[THREADS];
static int next[THREADS], holds[THREADS], tids[THREADS];
static pthread_barrier_t all;
static _Atomic int begun;

static void ready(int pid) {
    printf("ready %d\n", pid);
    fflush(stdout);
}

static void *starts(pthread_attr_t *how, void *(*run)(void *), size_t n) {
    pthread_t t;
    if (pthread_create(&t, how, run, (void *)n)) {
        puts("no thread");
        exit(1);
    }
    return 0;
}

/* Takes its own lock, and then waits for another one; -1: for nothing. */
static void *waits(void *number) {
    int i = (int)(size_t)number;
    tids[i] = gettid();
    if (holds[i]) pthread_mutex_lock(&locks[i]);
    begun++;
    pthread_barrier_wait(&all);
    if (next[i] >= 0) pthread_mutex_lock(&locks[next[i]]);
    for (;;) pause();
}

static void start_waits(int n) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&all, 0, n);
    for (int i = 0; i < n; i++) pthread_mutex_init(&locks[i], 0);
    for (int i = 0; i < n; i++) starts(&small, waits, i);
    while (begun < n) usleep(1000);
    for (int i = 0; i < n; i++) until_inside(tids[i], next[i] >= 0 ? SYS_futex : SYS_pause);
    ready(getpid());
    for (;;) pause();
}

/* Four cycles of 16, two chains of 80 whose last thread sleeps, and 32 threads that wait for one in the first cycle. */
static void chains(void) {
    for (int i = 0; i < 256; i++) {
        holds[i] = i < 224;
        if (i < 64) next[i] = i / 16 * 16 + (i + 1) % 16;
        else if (i < 224) next[i] = (i - 64) % 80 == 79 ? -1 : i + 1;
        else next[i] = 0;
    }
    start_waits(256);
}

/* So many threads, of which each waits for the one before it. */
static void threads(int n) {
    for (int i = 0; i < n; i++) holds[i] = 1, next[i] = i - 1;
    start_waits(n);
}

/* Processes that wait in a barrier that they share, without one. */
static void ranks(void) {
    struct {
        pthread_barrier_t all;
        _Atomic int begun;
    } *shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t how;
    pthread_barrierattr_init(&how);
    pthread_barrierattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->all, &how, RANKS);
    int absent = 0;
    for (int i = 0; i < RANKS; i++) {
        int pid = fork();
        if (!pid) {
            char name[16];
            snprintf(name, sizeof name, "rank %d", i);
            prctl(PR_SET_NAME, name);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(120);
            shared->begun++;
            if (i != 37) pthread_barrier_wait(&shared->all);
            for (;;) pause();
        }
        if (i == 37) absent = pid;
        tids[i] = pid;
    }
    while (shared->begun < RANKS) usleep(1000);
    usleep(500000);
    ready(absent);
    while (wait(0) > 0) {}
}

/* Takes two locks in one order, and gives two streams work that waits for each other's events in one order. */
static void *contends(void *number) {
    size_t n = (size_t)number;
    unsigned seed = n;
    for (unsigned i = 0;; i++) {
        void *own = (void *)(0x70 + n % 2), *other = (void *)(0x71 - n % 2), *event = (void *)(0x100 + n);
        pthread_mutex_lock(&locks[0]);
        if (rand_r(&seed) % 2) usleep(200);
        pthread_mutex_lock(&locks[1 + n % 2]);
        cuLaunchKernel((void *)0xf3, 1000, 1, 1, 1, 1, 1, 0, own, 0, 0);
        cuEventRecord(event, own);
        cuStreamWaitEvent(other, event, 0);
        pthread_mutex_unlock(&locks[1 + n % 2]);
        pthread_mutex_unlock(&locks[0]);
        if (i % 4 == n % 4) cuStreamSynchronize(own);
    }
    return 0;
}

/* Starts a process for each line that it reads: how long it lives (us), and how it ends. */
static void launches(void) {
    char line[64];
    ready(getpid());
    while (fgets(line, sizeof line, stdin)) {
        int life, how, pid;
        if (sscanf(line, "%d %d", &life, &how) != 2) break;
        if (!(pid = fork())) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(20);
            for (size_t i = 0; i < 3; i++) starts(0, contends, i);
            usleep(life);
            if (how == 0) exit(3);
            if (how == 1) abort();
            kill(getpid(), how == 2 ? SIGKILL : SIGTERM);
        }
        /* The ended ones are zombies until the next line. */
        while (waitpid(-1, 0, WNOHANG) > 0) {}
        ready(pid);
    }
    while (wait(0) > 0) {}
}

static void *locks_in(void *lock) {
    pthread_mutex_lock(lock);
    for (;;) pause();
}

/* The process's memory cannot be read: whoever reads the lock for which a thread waits there waits, too. */
static void without_memory(void) {
    struct uffdio_api api = {.api = UFFD_API};
    pthread_t t;
    pthread_mutex_t *lock = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    pthread_mutex_init(lock, 0);
    for (int i = 0; i < 2; i++) pthread_create(&t, 0, locks_in, lock), usleep(100000);
    struct uffdio_register all = {.range = {(size_t)lock, 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &all)) _exit(9);
    madvise(lock, 4096, MADV_DONTNEED);
}

static const char *path;

static void *reads(void *unused) {
    char byte;
    tids[0] = gettid();
    if (read(open(path, O_RDONLY), &byte, 1) < 0) pause();
    return unused;
}

/* The process hangs in the kernel while it changes its mappings. */
static void in_the_kernel(void) {
    starts(0, locks_in, (size_t)&locks[0]);
    starts(0, locks_in, (size_t)&locks[0]);
    starts(0, reads, 0);
    while (!tids[0]) usleep(1000);
    until_inside(tids[0], SYS_read);
    mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(path, O_RDONLY), 0);
}

static void *calls(void *unused) {
    for (;;) {
        cuLaunchKernel((void *)0xf3, 1, 1, 1, 1, 1, 1, 0, (void *)0x70, 0, 0);
        cuStreamSynchronize((void *)0x70);
    }
    return unused;
}

/* A process that hangs, and its parent, which makes calls and has two threads in a cycle. */
static void hangs(void) {
    int pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (path) in_the_kernel();
        else without_memory();
        for (;;) pause();
    }
    for (int i = 0; i < 2; i++) holds[i] = 1, next[i] = 1 - i;
    starts(0, calls, 0);
    usleep(800000);
    int status;
    if (waitpid(pid, &status, WNOHANG)) {
        printf("no hang\n");
        exit(0);
    }
    start_waits(2);
}

int main(int n, char **arguments) {
    char *mode = arguments[1];
    int number = n > 2 ? atoi(arguments[2]) : 0;
    alarm(300);
    for (int i = 0; i < 3; i++) pthread_mutex_init(&locks[i], 0);
    if (!strcmp(mode, "chains")) chains();
    if (!strcmp(mode, "threads")) threads(number);
    if (!strcmp(mode, "ranks")) ranks();
    if (!strcmp(mode, "launches")) launches();
    path = n > 2 ? arguments[2] : 0;
    if (!strcmp(mode, "hangs")) hangs();
    if (!strcmp(mode, "contended")) {
        for (size_t i = 0; i < 6; i++) starts(0, contends, i);
        ready(getpid());
        if (number) usleep(number);
        else for (;;) pause();
    }
    return 0;
}
