/* 64 threads at a few locks: checks the guarded data and the counts. */
#include "count.h"
#define THREADS 64
#define ROUNDS 2000
static pthread_mutex_t m[8];
static pthread_rwlock_t l[4];
static sem_t s;
static long guarded[8], shared_value[4], by_sem;
static atomic_int waiting;

static void *run(void *p) {
    unsigned x = (unsigned)(uintptr_t)p * 2654435761u + 1;
    for (int i = 0; i < ROUNDS; i++) {
        x = x * 1664525u + 1013904223u;
        unsigned k = x >> 8;
        switch (x >> 29) {
        case 0: case 1: case 2:
            P(mutex_lock, &m[k % 8]); guarded[k % 8]++; P(mutex_unlock, &m[k % 8]); break;
        case 3:
            if (P(mutex_trylock, &m[k % 8]) == 0) { guarded[k % 8]++; P(mutex_unlock, &m[k % 8]); } else { P(mutex_lock, &m[k % 8]); guarded[k % 8]++; P(mutex_unlock, &m[k % 8]); }
            break;
        case 4: case 5:
            P(rwlock_rdlock, &l[k % 4]); { volatile long v = shared_value[k % 4]; if (v != shared_value[k % 4]) abort(); } P(rwlock_unlock, &l[k % 4]); break;
        case 6:
            P(rwlock_wrlock, &l[k % 4]); shared_value[k % 4]++; P(rwlock_unlock, &l[k % 4]); break;
        default:
            /* Two at the same time, always in one order. */
            P(mutex_lock, &m[0]); P(mutex_lock, &m[1 + k % 7]); guarded[0]++; guarded[1 + k % 7]++;
            P(mutex_unlock, &m[1 + k % 7]); P(mutex_unlock, &m[0]);
            S(sem_wait, &s); by_sem++; S(sem_post, &s);
        }
    }
    return 0;
}

int main(void) {
    for (int i = 0; i < 8; i++) P(mutex_init, &m[i], 0);
    for (int i = 0; i < 4; i++) P(rwlock_init, &l[i], 0);
    S(sem_init, &s, 0, 1);
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++) if (pthread_create(&t[i], 0, run, (void *)i)) return 9;
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], 0);
    long sum = by_sem;
    for (int i = 0; i < 8; i++) sum += guarded[i];
    for (int i = 0; i < 4; i++) sum += shared_value[i];
    printf("sum %ld\n", sum);
    print_counts();
    return 0;
}
