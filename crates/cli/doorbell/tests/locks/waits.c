// Threads that wait for known holders. Each part has locks of its own, named by the place where they are made.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void ms(int n) {
    struct timespec t = {n / 1000, n % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static volatile int holding, asking, expected = 1;

/// The calling thread has its lock: for so long behind the time at which all others are about to ask for it.
static void has_it(int n) {
    __sync_fetch_and_add(&holding, 1);
    while (asking < expected) ms(1);
    ms(n);
}

static void asks(void) { __sync_fetch_and_add(&asking, 1); }

static void until_held(int by) {
    while (holding < by) ms(1);
}

static void named(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

static pthread_t start(void *(*f)(void *), void *with) {
    pthread_t t;
    if (pthread_create(&t, NULL, f, with)) abort();
    return t;
}

static pthread_mutex_t sleeper_lock = PTHREAD_MUTEX_INITIALIZER;

static void *sleeper(void *_) {
    named("sleeper");
    pthread_mutex_lock(&sleeper_lock);
    has_it(25);
    pthread_mutex_unlock(&sleeper_lock);
    return _;
}

static void *waiter(void *lock) {
    named("waiter");
    asks();
    pthread_mutex_lock(lock);
    ms(5);
    pthread_mutex_unlock(lock);
    return lock;
}

/// One holder, one waiter.
static void one(void) {
    pthread_t a = start(sleeper, NULL);
    until_held(1);
    pthread_t b = start(waiter, &sleeper_lock);
    pthread_join(a, NULL), pthread_join(b, NULL);
}

/// One holder, three waiters, who hold it for 5 ms each, in turn.
static void three(void) {
    expected = 3;
    pthread_t t[4] = {start(sleeper, NULL)};
    until_held(1);
    for (int i = 1; i < 4; i++) t[i] = start(waiter, &sleeper_lock);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
}

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, timed = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;

static void *quick(void *_) {
    named("quick");
    for (int i = 0; i < 200000; i++) {
        pthread_mutex_lock(&first);
        pthread_mutex_unlock(&first);
    }
    return _;
}

/// Locks that nobody waits for, one inside the other: no event.
static void free_locks(void) {
    pthread_join(start(quick, NULL), NULL);
}

static void *gives_up(void *_) {
    named("gives up");
    asks();
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 5000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    if (pthread_mutex_timedlock(&timed, &until) != ETIMEDOUT) abort();
    return _;
}

static void *long_one(void *_) {
    named("long one");
    pthread_mutex_lock(&timed);
    has_it(40);
    pthread_mutex_unlock(&timed);
    return _;
}

/// A wait that ends before the lock is free; then a hold of another thread that nobody waits for.
static void times_out(void) {
    pthread_t a = start(long_one, NULL);
    until_held(1);
    pthread_join(start(gives_up, NULL), NULL);
    pthread_join(a, NULL);
    pthread_join(start(waiter, &timed), NULL);
}

static pthread_mutex_t recursive;

static void *twice(void *_) {
    named("twice");
    pthread_mutex_lock(&recursive);
    pthread_mutex_lock(&recursive);
    has_it(10);
    pthread_mutex_unlock(&recursive);
    ms(10);
    pthread_mutex_unlock(&recursive);
    return _;
}

static void recursion(void) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &a);
    pthread_t t = start(twice, NULL);
    until_held(1);
    pthread_join(start(waiter, &recursive), NULL);
    pthread_join(t, NULL);
    pthread_mutex_destroy(&recursive);
}

static void *reads(void *_) {
    named("reader");
    pthread_rwlock_rdlock(&rw);
    has_it(20);
    pthread_rwlock_unlock(&rw);
    return _;
}

static void *writes(void *_) {
    named("writer");
    asks();
    pthread_rwlock_wrlock(&rw);
    ms(5);
    pthread_rwlock_unlock(&rw);
    return _;
}

/// Two readers hold what a writer waits for.
static void readers(void) {
    pthread_t a = start(reads, NULL), b = start(reads, NULL);
    until_held(2);
    pthread_join(start(writes, NULL), NULL);
    pthread_join(a, NULL), pthread_join(b, NULL);
}

/// Two locks at one address, one after the other: who held the first did not hold the second.
static void *holds_it(void *lock) {
    named("new holder");
    pthread_mutex_lock(lock);
    has_it(20);
    pthread_mutex_unlock(lock);
    return lock;
}

static void *leaves_it(void *lock) {
    named("old holder");
    pthread_mutex_lock(lock);
    return lock;
}

static void again(void) {
    static pthread_mutex_t lock;
    pthread_mutex_init(&lock, NULL);
    pthread_join(start(leaves_it, &lock), NULL);
    pthread_mutex_init(&lock, NULL);
    pthread_t a = start(holds_it, &lock);
    until_held(1);
    pthread_join(start(waiter, &lock), NULL);
    pthread_join(a, NULL);
}

static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t cond_lock = PTHREAD_MUTEX_INITIALIZER;
static int is_set;

static void *sets(void *_) {
    named("sets");
    ms(10);
    pthread_mutex_lock(&cond_lock);
    is_set = 1;
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&cond_lock);
    return _;
}

static void condition(void) {
    pthread_t t = start(sets, NULL);
    pthread_mutex_lock(&cond_lock);
    while (!is_set) pthread_cond_wait(&cond, &cond_lock);
    pthread_mutex_unlock(&cond_lock);
    pthread_join(t, NULL);
    for (int i = 0; i < 1000; i++) pthread_cond_signal(&cond);
}

static sem_t sem;

static void *posts(void *_) {
    named("posts");
    ms(10);
    sem_post(&sem);
    return _;
}

static void semaphore(void) {
    sem_init(&sem, 0, 0);
    pthread_t t = start(posts, NULL);
    sem_wait(&sem);
    pthread_join(t, NULL);
    for (int i = 0; i < 1000; i++) sem_post(&sem), sem_wait(&sem);
}

/// A child that was forked while another thread waits.
static void forked(void) {
    pthread_t a = start(sleeper, NULL);
    until_held(1);
    pthread_t b = start(waiter, &sleeper_lock);
    while (!asking) ms(1);
    ms(5);
    pid_t child = fork();
    if (child == 0) {
        holding = asking = 0;
        static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
        pthread_t c = start(holds_it, &own);
        until_held(1);
        pthread_join(start(waiter, &own), NULL);
        pthread_join(c, NULL);
        exit(0);
    }
    waitpid(child, NULL, 0);
    pthread_join(a, NULL), pthread_join(b, NULL);
}

/// Ends while one holds a lock and another waits for it.
static void never(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    start(waiter, &lock);
    while (!asking) ms(1);
    ms(20);
    exit(0);
}

enum { THREADS = 6, LOCKS = 3, TURNS = 400 };
static pthread_mutex_t crowd_locks[LOCKS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static struct turn {
    int lock;
    unsigned long long before, from, to, after;
} turns[THREADS][TURNS];
static int tids[THREADS];

static void *crowds(void *which) {
    long me = (long)which;
    unsigned seed = me + 1;
    tids[me] = gettid();
    for (int i = 0; i < TURNS; i++) {
        struct turn *t = &turns[me][i];
        t->lock = rand_r(&seed) % LOCKS;
        t->before = __builtin_ia32_rdtsc();
        pthread_mutex_lock(&crowd_locks[t->lock]);
        t->from = __builtin_ia32_rdtsc();
        unsigned long long long_enough = t->from + rand_r(&seed) % 100000;
        if (rand_r(&seed) % 8 == 0) usleep(rand_r(&seed) % 500);
        while (__builtin_ia32_rdtsc() < long_enough) {}
        t->to = __builtin_ia32_rdtsc();
        pthread_mutex_unlock(&crowd_locks[t->lock]);
        t->after = __builtin_ia32_rdtsc();
        if (rand_r(&seed) % 4 == 0) usleep(rand_r(&seed) % 300);
    }
    return which;
}

/// Many threads at three locks. Prints who held which lock when.
static void crowd(void) {
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++) t[i] = start(crowds, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < TURNS; k++) {
            struct turn *t = &turns[i][k];
            printf("%d %d %llu %llu %llu %llu\n", tids[i], t->lock, t->from, t->to, t->before, t->after);
        }
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"one", one},         {"three", three},         {"free", free_locks},     {"times-out", times_out},
                 {"recursion", recursion}, {"readers", readers}, {"again", again},         {"condition", condition},
                 {"semaphore", semaphore}, {"forked", forked},   {"never", never},
                 {"crowd", crowd}};
    named("main");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc > 1 && !strcmp(parts[i].name, argv[1])) return parts[i].run(), 0;
    return 2;
}
