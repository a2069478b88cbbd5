/* Counts a program's calls, and prints the counts at its end. The test compares them with the tape. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "../inside.h"

#define FUNCTIONS(X) \
    X(mutex_lock) X(mutex_trylock) X(mutex_timedlock) X(mutex_clocklock) X(mutex_unlock) X(mutex_init) X(mutex_destroy) \
    X(rwlock_rdlock) X(rwlock_tryrdlock) X(rwlock_timedrdlock) X(rwlock_clockrdlock) X(rwlock_wrlock) \
    X(rwlock_trywrlock) X(rwlock_timedwrlock) X(rwlock_clockwrlock) X(rwlock_unlock) X(rwlock_init) X(rwlock_destroy) \
    X(cond_wait) X(cond_timedwait) X(cond_clockwait) X(cond_signal) X(cond_broadcast) X(cond_init) X(cond_destroy) \
    X(sem_wait) X(sem_trywait) X(sem_timedwait) X(sem_clockwait) X(sem_post) X(sem_init) X(sem_destroy)

#define COUNTER(f) static atomic_long n_##f;
FUNCTIONS(COUNTER)

/* A pthread function, and one that is none. */
#define P(f, ...) (atomic_fetch_add(&n_##f, 1), pthread_##f(__VA_ARGS__))
#define S(f, ...) (atomic_fetch_add(&n_##f, 1), f(__VA_ARGS__))
/* One of threads.h, which is the pthread function `f` under another name. */
#define C11(f, name, ...) (atomic_fetch_add(&n_##f, 1), name(__VA_ARGS__))

static void print_counts(void) {
#define PRINT(f) printf("count " #f " %ld\n", atomic_load(&n_##f));
    FUNCTIONS(PRINT)
    fflush(stdout);
}

static inline struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000L;
    while (t.tv_nsec >= 1000000000L) { t.tv_nsec -= 1000000000L; t.tv_sec++; }
    while (t.tv_nsec < 0) { t.tv_nsec += 1000000000L; t.tv_sec--; }
    return t;
}
