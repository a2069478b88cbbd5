/* hammer THREADS TURNS: one mutex, locked and unlocked as fast as possible. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;
static long n;
static int turns = 100000;

static void *work(void *p) {
    pthread_barrier_wait(&all);
    for (int i = 0; i < turns; i++) {
        pthread_mutex_lock(&m);
        n++;
        pthread_mutex_unlock(&m);
    }
    return p;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    if (argc > 2) turns = atoi(argv[2]);
    pthread_t t[64];
    if (threads < 1 || threads > 64) return 2;
    pthread_barrier_init(&all, 0, threads);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&t[i], 0, work, 0)) return puts("no thread"), 1;
    for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
    printf("sum %ld\n", n);
    return n != (long)threads * turns;
}
