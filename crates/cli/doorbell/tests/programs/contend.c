/* contend [THREADS] [TURNS]: mutexes, an rwlock, a condition variable and a semaphore, contended. Right results, or status 1. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, recursive;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static sem_t s;
static long by_mutex, by_recursive, by_rwlock, turn;
static int threads = 4, turns = 2000;

static void *work(void *p) {
    long me = (long)p;
    for (int i = 0; i < turns; i++) {
        pthread_mutex_lock(&m);
        by_mutex++;
        pthread_mutex_unlock(&m);
        pthread_mutex_lock(&recursive);
        pthread_mutex_lock(&recursive);
        by_recursive++;
        pthread_mutex_unlock(&recursive);
        pthread_mutex_unlock(&recursive);
        if (i % 8) {
            pthread_rwlock_rdlock(&rw);
            if (by_rwlock < 0) abort();
        } else {
            pthread_rwlock_wrlock(&rw);
            by_rwlock++;
        }
        pthread_rwlock_unlock(&rw);
        sem_wait(&s);
        sem_post(&s);
    }
    /* One after the other. */
    pthread_mutex_lock(&m);
    while (turn != me) pthread_cond_wait(&c, &m);
    turn++;
    pthread_cond_broadcast(&c);
    pthread_mutex_unlock(&m);
    return p;
}

int main(int argc, char **argv) {
    if (argc > 1) threads = atoi(argv[1]);
    if (argc > 2) turns = atoi(argv[2]);
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &a);
    sem_init(&s, 0, 2);
    pthread_t *t = calloc(threads, sizeof *t);
    for (long i = 0; i < threads; i++)
        if (pthread_create(&t[i], 0, work, (void *)i)) return puts("no thread"), 1;
    for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
    free(t);
    long all = (long)threads * turns;
    int right = by_mutex == all && by_recursive == all && by_rwlock == (long)threads * ((turns + 7) / 8) && turn == threads;
    printf("%s %ld\n", right ? "right" : "wrong", by_mutex);
    return !right;
}
