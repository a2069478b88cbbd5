/* Threads that wait for one another, in the way that its argument names. Prints a line when they do. */
#define _GNU_SOURCE
#include "../inside.h"
#include <pthread.h>
#include <string.h>

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
extern void (*volatile cuStubWithin)(void);

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER, c = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t all;
static _Atomic int tids[8], count;

static void begins(const char *name) {
    pthread_setname_np(pthread_self(), name);
    tids[count++] = gettid();
}

static void *writer(void *mode) {
    begins("writer");
    pthread_mutex_lock(&a);
    pthread_barrier_wait(&all);
    if (*(char *)mode == 'r')
        pthread_rwlock_wrlock(&table);
    else
        pthread_mutex_lock(&b);
    return 0;
}

static void *reader(void *mode) {
    begins("reader");
    if (*(char *)mode == 'r')
        pthread_rwlock_rdlock(&table);
    else
        pthread_mutex_lock(&b);
    pthread_barrier_wait(&all);
    pthread_mutex_lock(*(char *)mode == 'r' ? &b : &a);
    return 0;
}

static void *third(void *mode) {
    begins("third");
    pthread_mutex_lock(&b);
    pthread_barrier_wait(&all);
    pthread_mutex_lock(&a);
    return mode;
}

static void hang(void) {
    for (;;) pause();
}

static void *caller(void *mode) {
    begins("caller");
    pthread_mutex_lock(&a);
    pthread_barrier_wait(&all);
    cuLaunchKernel((void *)0x100, 1, 1, 1, 1, 1, 1, 0, (void *)0x77, 0, 0);
    return mode;
}

static void *waiter(void *mode) {
    begins("waiter");
    pthread_barrier_wait(&all);
    pthread_mutex_lock(&a);
    return mode;
}

static void *prints(void *tid) {
    until_inside(*(int *)tid, SYS_futex);
    usleep(200000);
    puts("ready");
    fflush(stdout);
    return 0;
}

static void *leaves(void *mode) {
    pthread_mutex_lock(&a);
    return mode;
}

/* Takes locks in one order, some for long, and waits for a condition. */
static void *busy(void *number) {
    begins("busy");
    unsigned seed = (unsigned)(size_t)number;
    for (unsigned i = 0;; i++) {
        pthread_mutex_t *first = rand_r(&seed) % 2 ? &a : &b;
        if (rand_r(&seed) % 2)
            pthread_rwlock_rdlock(&table);
        else
            pthread_rwlock_wrlock(&table);
        pthread_mutex_lock(first);
        pthread_mutex_lock(&c);
        usleep(rand_r(&seed) % 50 ? 50 : 150000);
        if (i % 16 == 0) {
            struct timespec soon = {0, 1000000};
            pthread_cond_timedwait(&work, &c, &soon);
        }
        pthread_cond_signal(&work);
        pthread_mutex_unlock(&c);
        pthread_mutex_unlock(first);
        pthread_rwlock_unlock(&table);
    }
    return 0;
}

/* Takes and releases two locks in two orders; in the second it only tries. So threads that it meets wait, and nothing hangs. (It has the
 * first lock for longer than it has none, and six threads share two: some wait at any time.) */
static void *crosses(void *number) {
    begins("crosses");
    int swapped = (size_t)number % 2;
    for (;;) {
        pthread_mutex_t *first = swapped ? &b : &a, *second = swapped ? &a : &b;
        pthread_mutex_lock(first);
        usleep(200);
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 500000;
        if (soon.tv_nsec < 1000000000 && !pthread_mutex_timedlock(second, &soon)) pthread_mutex_unlock(second);
        pthread_mutex_unlock(first);
        usleep(50);
    }
    return 0;
}

int main(int n, char **arguments) {
    char *mode = arguments[1];
    void *(*of[8])(void *) = {0};
    int threads = 0, rest = 0;
    alarm(120);
    pthread_t t;
    if (!strcmp(mode, "mutexes"))
        of[0] = writer, of[1] = reader, threads = 2;
    else if (!strcmp(mode, "rwlock"))
        of[0] = writer, of[1] = reader, of[2] = third, threads = 3;
    else if (!strcmp(mode, "call"))
        of[0] = caller, of[1] = waiter, threads = 2, cuStubWithin = hang;
    else if (!strcmp(mode, "left")) {
        pthread_create(&t, 0, leaves, 0);
        pthread_join(t, 0);
        of[0] = waiter, threads = 1;
    } else if (!strcmp(mode, "join")) {
        pthread_t printer;
        int own = gettid();
        pthread_mutex_lock(&a);
        pthread_barrier_init(&all, 0, 1);
        pthread_create(&t, 0, waiter, mode);
        while (!count) usleep(1000);
        until_inside(tids[0], SYS_futex);
        pthread_create(&printer, 0, prints, &own);
        pthread_join(t, 0);
    } else if (!strcmp(mode, "busy") || !strcmp(mode, "crosses")) {
        void *(*run)(void *) = *mode == 'b' ? busy : crosses;
        for (size_t i = 0; i < 6; i++) pthread_create(&t, 0, run, (void *)i);
        usleep(100000);
    }
    (void)n;
    if (threads) pthread_barrier_init(&all, 0, threads);
    for (int i = 0; i < threads; i++) pthread_create(&t, 0, of[i], mode);
    while (count < threads) usleep(1000);
    for (int i = 0; i < threads; i++) {
        int is_caller = of[0] == caller && rest++ == 0;
        if (!is_caller) until_inside(tids[i], SYS_futex);
    }
    usleep(200000);
    puts("ready");
    fflush(stdout);
    if (n > 2) usleep(atoi(arguments[2]));
    else for (;;) pause();
    if (n > 3) abort();
    return 0;
}
