/* Threads that end in every way, late destructors, exit handlers, a fork, a cancelled wait. */
#include "count.h"
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_key_t key;
static long guarded;
static sem_t s;

static void take(void) { P(mutex_lock, &m); guarded++; P(mutex_unlock, &m); }

/* Sets the key again until libc gives up: the last of a thread's destructors. */
static void late(void *p) { take(); if ((uintptr_t)p < 4) pthread_setspecific(key, (void *)((uintptr_t)p + 1)); }
static void *ends(void *p) { take(); pthread_setspecific(key, (void *)1); if (p) pthread_exit(0); return 0; }

static void give(void *p) { P(mutex_unlock, (pthread_mutex_t *)p); }
static void *cancelled_in_cond(void *p) {
    P(mutex_lock, &m);
    pthread_cleanup_push(give, &m);
    for (;;) pthread_cond_wait(&c, &m); /* (Not counted: it does not return.) */
    pthread_cleanup_pop(0);
    return p;
}
static void *cancelled_in_sem(void *p) { for (;;) sem_wait(&s); return p; }
static void *cancelled_before_sem(void *p) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
    while (!atomic_load((atomic_int *)p)) usleep(100);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, 0);
    sem_wait(&s);
    return 0;
}

static void at_exit(void) { take(); printf("guarded %ld\n", guarded); print_counts(); }

int main(void) {
    pthread_key_create(&key, late);
    S(sem_init, &s, 0, 0);
    for (int i = 0; i < 40; i++) {
        pthread_t t;
        pthread_create(&t, 0, ends, i % 2 ? &m : 0);
        pthread_join(t, 0);
    }
    pthread_t t;
    void *r;
    pthread_create(&t, 0, cancelled_in_cond, 0);
    usleep(50000);
    pthread_cancel(t);
    pthread_join(t, &r);
    printf("cond %d\n", r == PTHREAD_CANCELED);
    take();
    pthread_create(&t, 0, cancelled_in_sem, 0);
    usleep(50000);
    pthread_cancel(t);
    pthread_join(t, &r);
    printf("sem %d\n", r == PTHREAD_CANCELED);
    /* A wait that returns immediately is a cancellation point, too. */
    S(sem_post, &s);
    static atomic_int sent;
    pthread_create(&t, 0, cancelled_before_sem, &sent);
    pthread_cancel(t);
    sent = 1;
    pthread_join(t, &r);
    int value;
    sem_getvalue(&s, &value);
    printf("free sem %d %d\n", r == PTHREAD_CANCELED, value);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 1000; i++) { pthread_mutex_lock(&m); pthread_mutex_unlock(&m); }
        _exit(5);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    take();
    atexit(at_exit);
    return 0;
}
