/* The purpose of each policy, shown by an event that happens or does not. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static void nap(long us) { usleep((useconds_t)us); }

/* ---- ticket: a thread that unlocks and locks again does not overtake a waiter */
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static atomic_int waits, had;
static void *waiter(void *p) {
    (void)p;
    waits = 1;
    pthread_mutex_lock(&m);
    had = 1;
    pthread_mutex_unlock(&m);
    return NULL;
}
static void ticket(void) {
    int in_turn = 0;
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        waits = had = 0;
        pthread_mutex_lock(&m);
        pthread_create(&t, NULL, waiter, NULL);
        while (!waits) nap(100);
        nap(20000);
        pthread_mutex_unlock(&m);
        pthread_mutex_lock(&m);
        in_turn += had;
        pthread_mutex_unlock(&m);
        pthread_join(t, NULL);
    }
    printf("in turn %d of 20\n", in_turn);
}

/* ---- pi: the lock word names the owner, and a waiter's priority reaches it */
static void pi(void) {
    pthread_mutex_lock(&m);
    /* __lock, +0. */
    int owner = *(int *)&m & 0x3fffffff;
    printf("the word is %s\n", owner == (int)syscall(SYS_gettid) ? "the owner" : "a state");
    pthread_mutex_unlock(&m);
}

/* ---- a waiter of real-time priority: the priority that the holder runs at */
static void *urgent(void *p) {
    (void)p;
    struct sched_param s = {.sched_priority = 30};
    int r = pthread_setschedparam(pthread_self(), SCHED_FIFO, &s);
    if (r) { printf("skipped: %s\n", strerror(r)); exit(0); }
    waits = 1;
    pthread_mutex_lock(&m);
    pthread_mutex_unlock(&m);
    return NULL;
}
/* The eighteenth field of stat: the scheduler's priority; -1 - priority for real time. */
static long effective(void) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", syscall(SYS_gettid));
    FILE *f = fopen(path, "r");
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    char *at = strrchr(line, ')');
    for (int field = 2; at && field < 18; field++) at = strchr(at + 1, ' ');
    return at ? strtol(at, NULL, 10) : 0;
}
static void raised(void) {
    pthread_t t;
    waits = 0;
    long before = effective();
    pthread_mutex_lock(&m);
    pthread_create(&t, NULL, urgent, NULL);
    while (!waits) nap(100);
    long at = 0;
    for (int i = 0; i < 1000 && at >= 0; i++) nap(1000), at = effective();
    pthread_mutex_unlock(&m);
    pthread_join(t, NULL);
    long after = effective();
    printf("raised %s, after that %s\n", at == -31 ? "to its waiter" : "not", after == before ? "as before" : "not as before");
}

/* ---- while its priority is raised, it makes a thread, and sets its own priority */
static void *born(void *p) { *(long *)p = effective(); return NULL; }
static void own(void) {
    pthread_t t, u;
    long before = effective(), child = 0;
    waits = 0;
    pthread_mutex_lock(&m);
    pthread_create(&t, NULL, urgent, NULL);
    while (!waits) nap(100);
    for (int i = 0; i < 100 && effective() >= 0; i++) nap(1000);
    pthread_create(&u, NULL, born, &child);
    pthread_join(u, NULL);
    printf("a thread is born %s\n", child == before ? "as its maker was" : "higher");
    struct sched_param s = {.sched_priority = 30};
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &s);
    pthread_mutex_unlock(&m);
    pthread_join(t, NULL);
    printf("its own will %s\n", effective() == -31 ? "counts" : "is undone");
}

/* ---- phase-fair: overlapping readers do not keep a writer out */
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int reads[2], over;
static void *reader(void *p) {
    int me = *(int *)p, other = 1 - me;
    while (!over) {
        pthread_rwlock_rdlock(&l);
        int seen = atomic_fetch_add(&reads[me], 1), of = reads[other];
        (void)seen;
        /* Until the other has entered, too, or after a time limit. */
        long since = ms();
        while (reads[other] == of && ms() - since < 50 && !over) nap(200);
        pthread_rwlock_unlock(&l);
    }
    return NULL;
}
static void *writer(void *p) {
    long since = ms();
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 2;
    int r = pthread_rwlock_timedwrlock(&l, &t);
    if (!r) pthread_rwlock_unlock(&l);
    (void)since, (void)p;
    printf("the writer %s\n", r ? "starved" : "wrote");
    over = 1;
    return NULL;
}
static void phases(void) {
    pthread_t t[3];
    int number[2] = {0, 1};
    pthread_create(&t[0], NULL, reader, &number[0]);
    pthread_create(&t[1], NULL, reader, &number[1]);
    while (reads[0] < 3 || reads[1] < 3) nap(1000);
    pthread_create(&t[2], NULL, writer, NULL);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
}

/* A reader that holds the lock waits for a second reader; a writer waits between the two. */
static pthread_rwlock_t between = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int second_read, written;
static void *second_reader(void *unused) {
    pthread_rwlock_rdlock(&between);
    second_read = 1;
    pthread_rwlock_unlock(&between);
    return unused;
}
static void *writer_between(void *unused) {
    pthread_rwlock_wrlock(&between);
    written = 1;
    pthread_rwlock_unlock(&between);
    return unused;
}
static void readers(void) {
    pthread_t t[2];
    pthread_rwlock_rdlock(&between);
    pthread_create(&t[0], NULL, writer_between, NULL);
    nap(200000);
    pthread_create(&t[1], NULL, second_reader, NULL);
    for (int i = 0; i < 20000 && !second_read; i++) nap(1000);
    int both = second_read, early = written;
    pthread_rwlock_unlock(&between);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    printf("the second reader %s, the writer wrote %s\n", both && !early ? "read" : "waited in vain", early ? "early" : "afterwards");
}

int main(int n, char **a) {
    alarm(60);
    const char *what = n > 1 ? a[1] : "";
    if (!strcmp(what, "ticket")) ticket();
    if (!strcmp(what, "pi")) pi();
    if (!strcmp(what, "raised")) raised();
    if (!strcmp(what, "own")) own();
    if (!strcmp(what, "phases")) phases();
    if (!strcmp(what, "readers")) readers();
    return 0;
}
