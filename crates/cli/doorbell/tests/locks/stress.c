/* Many threads, a random mix of every operation, and data that shows violations of exclusion. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MUTEXES = 64, RWLOCKS = 64, WORDS = 6 };

static struct { pthread_mutex_t m; pthread_cond_t c; long words[WORDS]; atomic_long done; } mutexes[MUTEXES];
static struct { pthread_rwlock_t l; volatile long words[WORDS]; atomic_long done; } rwlocks[RWLOCKS];
static long operations;
static atomic_int broken;

static uint64_t roll(uint64_t *s) {
    *s ^= *s << 13; *s ^= *s >> 7; *s ^= *s << 17;
    return *s >> 11;
}
static struct timespec soon(clockid_t clock, long us) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += us * 1000;
    if (t.tv_nsec >= 1000000000) { t.tv_nsec -= 1000000000; t.tv_sec++; }
    return t;
}
static void check(int ok, const char *what) {
    if (!ok && !atomic_exchange(&broken, 1)) fprintf(stderr, "broken: %s\n", what);
}
static void change(volatile long *w, atomic_long *done) {
    long first = w[0];
    for (int i = 0; i < WORDS; i++) { check(w[i] == first, "words differ for a writer"); w[i] = first + 1; }
    atomic_fetch_add(done, 1);
}
static void look(volatile long *w) {
    long first = w[0];
    for (int i = 1; i < WORDS; i++) check(w[i] == first, "words differ for a reader");
}

static void a_mutex(uint64_t *s) {
    unsigned i = roll(s) % MUTEXES, kind = i % 4;
    pthread_mutex_t *m = &mutexes[i].m;
    struct timespec t;
    int r;
    switch (roll(s) % 16) {
    case 0: case 1: r = pthread_mutex_trylock(m); check(!r || r == EBUSY, "trylock"); break;
    case 2: t = soon(CLOCK_REALTIME, roll(s) % 300); r = pthread_mutex_timedlock(m, &t); check(!r || r == ETIMEDOUT, "timedlock"); break;
    case 3: t = soon(CLOCK_MONOTONIC, roll(s) % 300); r = pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &t); check(!r || r == ETIMEDOUT, "clocklock"); break;
    default: r = pthread_mutex_lock(m); check(!r, "lock");
    }
    if (r) return;
    change(mutexes[i].words, &mutexes[i].done);
    switch (roll(s) % 64) {
    case 0:
        t = soon(CLOCK_REALTIME, roll(s) % 500);
        r = pthread_cond_timedwait(&mutexes[i].c, m, &t);
        check(!r || r == ETIMEDOUT, "timedwait");
        change(mutexes[i].words, &mutexes[i].done);
        break;
    case 1: pthread_cond_broadcast(&mutexes[i].c); break;
    case 2: case 3: pthread_cond_signal(&mutexes[i].c); break;
    case 4: case 5: case 6:
        if (kind == 1) { check(!pthread_mutex_lock(m), "again"); check(!pthread_mutex_unlock(m), "unlock of two"); }
        if (kind == 2) check(pthread_mutex_lock(m) == EDEADLK, "errorcheck");
        break;
    case 7: {
        /* In order, so that no threads deadlock. */
        unsigned j = i + 1 + roll(s) % 8;
        if (j < MUTEXES && !pthread_mutex_lock(&mutexes[j].m)) {
            change(mutexes[j].words, &mutexes[j].done);
            check(!pthread_mutex_unlock(&mutexes[j].m), "inner unlock");
        }
    }
    }
    check(!pthread_mutex_unlock(m), "unlock");
}

static void a_rwlock(uint64_t *s) {
    unsigned i = roll(s) % RWLOCKS;
    pthread_rwlock_t *l = &rwlocks[i].l;
    struct timespec t;
    int r, writes = 0;
    switch (roll(s) % 16) {
    case 0: r = pthread_rwlock_tryrdlock(l); check(!r || r == EBUSY, "tryrdlock"); break;
    case 1: writes = 1; r = pthread_rwlock_trywrlock(l); check(!r || r == EBUSY, "trywrlock"); break;
    case 2: t = soon(CLOCK_REALTIME, roll(s) % 300); r = pthread_rwlock_timedrdlock(l, &t); check(!r || r == ETIMEDOUT, "timedrdlock"); break;
    case 3: writes = 1; t = soon(CLOCK_MONOTONIC, roll(s) % 300); r = pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &t); check(!r || r == ETIMEDOUT, "clockwrlock"); break;
    case 4: case 5: case 6: case 7: writes = 1; r = pthread_rwlock_wrlock(l); check(!r, "wrlock"); break;
    default: r = pthread_rwlock_rdlock(l); check(!r, "rdlock");
    }
    if (r) return;
    if (writes) {
        change(rwlocks[i].words, &rwlocks[i].done);
        if (roll(s) % 32 == 0) check(pthread_rwlock_wrlock(l) == EDEADLK, "own wrlock");
    } else {
        look(rwlocks[i].words);
        if (roll(s) % 16 == 0) {
            check(!pthread_rwlock_rdlock(l), "read again");
            look(rwlocks[i].words);
            check(!pthread_rwlock_unlock(l), "unlock of two reads");
        }
    }
    check(!pthread_rwlock_unlock(l), "rwlock unlock");
}

/* Two threads take turns, and wait without a limit: a lost wake-up is never repaired. */
enum { PAIRS = 1024, A_TURN = 64 };
static struct { pthread_mutex_t m; pthread_cond_t c; long turn; } pairs[PAIRS];
static long threads;
static void a_turn(long me, uint64_t *s) {
    long pair = me / 2;
    if (pair >= PAIRS || (me | 1) >= threads) return;
    check(!pthread_mutex_lock(&pairs[pair].m), "lock of two");
    while (pairs[pair].turn % 2 != me % 2) check(!pthread_cond_wait(&pairs[pair].c, &pairs[pair].m), "wait");
    pairs[pair].turn++;
    check(!(roll(s) % 2 ? pthread_cond_signal(&pairs[pair].c) : pthread_cond_broadcast(&pairs[pair].c)), "signal");
    check(!pthread_mutex_unlock(&pairs[pair].m), "unlock of two");
}

static void *works(void *p) {
    uint64_t s = (uintptr_t)p * 0x9e3779b97f4a7c15u | 1;
    for (long i = 0; i < operations; i++) {
        if (i % A_TURN == 0) a_turn((long)p - 1, &s);
        roll(&s) % 2 ? a_mutex(&s) : a_rwlock(&s);
    }
    return NULL;
}

int main(int n, char **a) {
    threads = n > 1 ? atoi(a[1]) : 64;
    operations = n > 2 ? atol(a[2]) : 1000;
    int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int i = 0; i < MUTEXES; i++) {
        pthread_mutexattr_t at;
        pthread_mutexattr_init(&at);
        pthread_mutexattr_settype(&at, types[i % 4]);
        pthread_mutex_init(&mutexes[i].m, &at);
        pthread_cond_init(&mutexes[i].c, NULL);
    }
    for (int i = 0; i < RWLOCKS; i++) pthread_rwlock_init(&rwlocks[i].l, NULL);
    for (int i = 0; i < PAIRS; i++) { pthread_mutex_init(&pairs[i].m, NULL); pthread_cond_init(&pairs[i].c, NULL); }
    pthread_t *t = calloc((size_t)threads, sizeof *t);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    for (long i = 0; i < threads; i++) if (pthread_create(&t[i], &small, works, (void *)(i + 1))) abort();
    for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
    for (long i = 0; i < threads / 2 && i < PAIRS; i++) check(pairs[i].turn == 2 * ((operations + A_TURN - 1) / A_TURN), "turns");
    long all = 0;
    for (int i = 0; i < MUTEXES; i++) { check(mutexes[i].words[0] == mutexes[i].done, "a change is lost"); all += mutexes[i].done; check(!pthread_mutex_destroy(&mutexes[i].m), "destroy"); }
    for (int i = 0; i < RWLOCKS; i++) { check(rwlocks[i].words[0] == rwlocks[i].done, "a write is lost"); all += rwlocks[i].done; check(!pthread_rwlock_destroy(&rwlocks[i].l), "destroy"); }
    printf("%s, %s\n", broken ? "broken" : "whole", all > threads * operations / 2 ? "enough changes" : "too few changes");
    return broken;
}
