/* Threads that give up their wait for a lock by siglongjmp out of a signal handler, as timeouts by alarm(2) do. POSIX leaves it
 * undefined; with glibc's mutexes the other threads continue. The output must be the same whatever is preloaded. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MUTEX, WRITER };
static const char *names[] = {"mutex", "writer"};

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;

static _Thread_local sigjmp_buf back;
static _Thread_local sigjmp_buf within;
static _Thread_local int stays;

/* A jump that stays in the handler; then one that leaves the wait, unless the thread must keep waiting. */
static void handler(int signal) {
    (void)signal;
    if (!sigsetjmp(within, 1)) siglongjmp(within, 1);
    if (!stays) siglongjmp(back, 1);
}

struct waiter { pthread_t thread; int way, stays, altstack, asynchronous, type; atomic_int tid, left, got; };

static void take(int way) {
    if (way == MUTEX) pthread_mutex_lock(&m); else pthread_rwlock_wrlock(&l);
}

static void give(int way) {
    if (way == MUTEX) pthread_mutex_unlock(&m); else pthread_rwlock_unlock(&l);
}

/* Overwrites the remains of a wait on the stack. */
static __attribute__((noinline)) void fill(void) {
    volatile char room[16384];
    for (size_t i = 0; i < sizeof room; i++) room[i] = (char)0xff;
}

static void *waits(void *p) {
    struct waiter *w = p;
    stack_t alt = {.ss_size = 65536}, none = {.ss_flags = SS_DISABLE};
    alt.ss_sp = malloc(alt.ss_size);
    if (w->altstack) sigaltstack(&alt, NULL);
    stays = w->stays;
    /* (A thread with asynchronous cancellation waits outside of gates: its cancel type must still be restored.) */
    if (w->way == MUTEX && w->asynchronous) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    if (!sigsetjmp(back, 1)) {
        w->tid = gettid();
        take(w->way);
        w->got = 1;
        give(w->way);
    } else {
        fill();
        w->left = 1;
    }
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &w->type);
    sigaltstack(&none, NULL);
    free(alt.ss_sp);
    return NULL;
}

/* Until the thread sleeps, and has slept twice. */
static void asleep(struct waiter *w) {
    char path[64], line[512];
    for (int seen = 0; seen < 3; usleep(1000)) {
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", w->tid);
        FILE *f = w->tid ? fopen(path, "r") : NULL;
        if (!f) continue;
        size_t n = fread(line, 1, sizeof line - 1, f);
        line[n] = 0;
        fclose(f);
        char *end = strrchr(line, ')');
        seen = end && end[2] == 'S' ? seen + 1 : 0;
    }
}

static long count, written;
static void *uses(void *p) {
    (void)p;
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&m); count++; pthread_mutex_unlock(&m);
        pthread_rwlock_wrlock(&l); written++; pthread_rwlock_unlock(&l);
        pthread_rwlock_rdlock(&l); pthread_rwlock_unlock(&l);
    }
    return NULL;
}

static void *unlocks(void *p) { (void)p; return (void *)(long)pthread_mutex_unlock(&m); }

#define N 5
static void leave(int way, int which) {
    struct waiter all[N] = {0};
    pthread_mutex_lock(&m);
    pthread_rwlock_rdlock(&l);
    for (int i = 0; i < N; i++) {
        /* Bits of `which`: the threads that leave. All get the signal. */
        all[i].way = way;
        all[i].stays = !(which >> i & 1);
        all[i].altstack = i & 1;
        all[i].asynchronous = i == 3;
        pthread_create(&all[i].thread, NULL, waits, &all[i]);
        asleep(&all[i]);
    }
    for (int i = 0; i < N; i++) {
        pthread_kill(all[i].thread, SIGUSR1);
        if (all[i].stays) continue;
        while (!all[i].left) usleep(200);
    }
    pthread_rwlock_unlock(&l);
    pthread_mutex_unlock(&m);
    int left = 0, got = 0, kinds = 0;
    for (int i = 0; i < N; i++) {
        pthread_join(all[i].thread, NULL);
        left += all[i].left;
        got += all[i].got;
        kinds += all[i].type;
    }
    count = written = 0;
    pthread_t users[3];
    for (int i = 0; i < 3; i++) pthread_create(&users[i], NULL, uses, NULL);
    for (int i = 0; i < 3; i++) pthread_join(users[i], NULL);
    printf("%s %d: left %d got %d asynchronous %d count %ld\n", names[way], which, left, got, kinds, count + written);
}

int main(int argc, char **argv) {
    (void)argv;
    alarm(20);
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct sigaction on_main = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGUSR1, &on_main, NULL);
    /* (glibc's conditions and rwlocks do not allow it. The gate of a rwlock does: all but the first wait there.) */
    if (argc > 1) {
        leave(WRITER, 10);
        leave(WRITER, 16);
    } else {
        static const int which[] = {1, 31, 5, 10, 16};
        for (int i = 0; i < 5; i++) leave(MUTEX, which[i]);
    }
    /* A waiter that left is not counted: another thread unlocks the mutex, and it is locked again. */
    pthread_t t;
    void *r;
    pthread_mutex_lock(&m);
    pthread_create(&t, NULL, unlocks, NULL);
    pthread_join(t, &r);
    printf("unlocked by another %ld, then %d\n", (long)r, pthread_mutex_lock(&m));
    pthread_mutex_unlock(&m);
    return 0;
}
