/* Every lock function, with each kind of lock, and what it returned. The lines must be the same whatever is preloaded. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const char *name_of(int r) {
    switch (r) {
    case 0: return "0";
    case EBUSY: return "EBUSY";
    case EDEADLK: return "EDEADLK";
    case EPERM: return "EPERM";
    case EINVAL: return "EINVAL";
    case EAGAIN: return "EAGAIN";
    case ETIMEDOUT: return "ETIMEDOUT";
    case EOWNERDEAD: return "EOWNERDEAD";
    case ENOTRECOVERABLE: return "ENOTRECOVERABLE";
    default: return strerror(r);
    }
}

static void say(const char *what, int r) { printf("%s: %s\n", what, name_of(r)); }
#define SAY(call) say(#call, call)

static struct timespec in(clockid_t clock, long ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms % 1000 * 1000000;
    t.tv_sec += ms / 1000;
    if (t.tv_nsec >= 1000000000) { t.tv_nsec -= 1000000000; t.tv_sec++; }
    return t;
}

static pthread_mutex_t late = PTHREAD_MUTEX_INITIALIZER;

/* Runs f in a thread and waits for it. */
static void *value(void *(*f)(void *), void *with) {
    pthread_t t;
    void *r;
    if (pthread_create(&t, NULL, f, with) || pthread_join(t, &r)) abort();
    return r;
}

static void *try_other(void *m) { return (void *)(long)pthread_mutex_trylock(m); }
static void *unlock_other(void *m) { return (void *)(long)pthread_mutex_unlock(m); }
static void *timed_other(void *m) {
    struct timespec t = in(CLOCK_REALTIME, 30);
    return (void *)(long)pthread_mutex_timedlock(m, &t);
}
static void *clock_other(void *m) {
    struct timespec t = in(CLOCK_MONOTONIC, 30);
    return (void *)(long)pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &t);
}
static void *past_other(void *m) {
    struct timespec t = {1, 0};
    return (void *)(long)pthread_mutex_timedlock(m, &t);
}
static void *invalid_other(void *m) {
    struct timespec t = {1, 1000000000};
    return (void *)(long)pthread_mutex_timedlock(m, &t);
}
static void *lock_other(void *m) {
    long r = pthread_mutex_lock(m);
    if (!r) r = pthread_mutex_unlock(m);
    return (void *)r;
}
#define OTHER(what, m) say(#what " by another", (int)(long)value(what, m))

static void of_mutex(const char *kind, pthread_mutex_t *m, int type) {
    struct timespec t, bad = {1, 1000000000}, past = {1, 0};
    printf("-- %s\n", kind);
    for (int round = 0; round < 2; round++) {
        SAY(pthread_mutex_trylock(m));
        SAY(pthread_mutex_unlock(m));
        SAY(pthread_mutex_lock(m));
        SAY(pthread_mutex_trylock(m));
        if (type == PTHREAD_MUTEX_RECURSIVE) SAY(pthread_mutex_unlock(m));
        if (type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK) {
            SAY(pthread_mutex_lock(m));
            if (type == PTHREAD_MUTEX_RECURSIVE) SAY(pthread_mutex_unlock(m));
            OTHER(unlock_other, m);
        }
        t = in(CLOCK_REALTIME, 30);
        SAY(pthread_mutex_timedlock(m, &t));
        if (type == PTHREAD_MUTEX_RECURSIVE) SAY(pthread_mutex_unlock(m));
        t = in(CLOCK_MONOTONIC, 30);
        SAY(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &t));
        if (type == PTHREAD_MUTEX_RECURSIVE) SAY(pthread_mutex_unlock(m));
        SAY(pthread_mutex_clocklock(m, CLOCK_PROCESS_CPUTIME_ID, &t));
        OTHER(try_other, m);
        OTHER(timed_other, m);
        OTHER(clock_other, m);
        OTHER(past_other, m);
        OTHER(invalid_other, m);
        SAY(pthread_mutex_destroy(m));
        SAY(pthread_mutex_unlock(m));
        if (type == PTHREAD_MUTEX_ERRORCHECK || type == PTHREAD_MUTEX_RECURSIVE) SAY(pthread_mutex_unlock(m));
        OTHER(lock_other, m);
        SAY(pthread_mutex_timedlock(m, &bad));
        SAY(pthread_mutex_unlock(m));
        SAY(pthread_mutex_timedlock(m, &past));
        SAY(pthread_mutex_unlock(m));
    }
    if (type == PTHREAD_MUTEX_RECURSIVE) {
        int i, r = 0, n = 0;
        for (i = 0; i < 1000; i++) r |= pthread_mutex_lock(m);
        for (i = 0; i < 999; i++) r |= pthread_mutex_unlock(m);
        say("a thousand times", r);
        OTHER(try_other, m);
        SAY(pthread_mutex_unlock(m));
        OTHER(lock_other, m);
        (void)n;
        /* __count, +4: as if it was locked so many times. */
        SAY(pthread_mutex_lock(m));
        ((unsigned *)m)[1] = ~0u;
        SAY(pthread_mutex_lock(m));
        SAY(pthread_mutex_trylock(m));
        ((unsigned *)m)[1] = 1;
        SAY(pthread_mutex_unlock(m));
    }
    SAY(pthread_mutex_destroy(m));
}

/* ---- a plain mutex that another thread unlocks, and one that is locked twice */
static pthread_mutex_t handed = PTHREAD_MUTEX_INITIALIZER;
static volatile int stage;
static void *twice(void *m) {
    int r = pthread_mutex_lock(m);
    stage = 1;
    r |= pthread_mutex_lock(m);
    stage = 2;
    r |= pthread_mutex_unlock(m);
    return (void *)(long)r;
}
static void foreign(void) {
    printf("-- foreign unlock\n");
    for (int i = 0; i < 3; i++) {
        SAY(pthread_mutex_lock(&handed));
        OTHER(unlock_other, &handed);
        OTHER(lock_other, &handed);
        SAY(pthread_mutex_trylock(&handed));
        SAY(pthread_mutex_unlock(&handed));
    }
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    pthread_t t;
    void *r;
    pthread_create(&t, NULL, twice, &m);
    while (stage != 1) usleep(1000);
    usleep(30000);
    say("stage while it waits for itself", stage == 1 ? 0 : EINVAL);
    SAY(pthread_mutex_unlock(&m));
    pthread_join(t, &r);
    say("locked twice", (int)(long)r);
    SAY(pthread_mutex_trylock(&m));
    SAY(pthread_mutex_unlock(&m));
}

/* ---- conditions */
static pthread_mutex_t cm = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cc = PTHREAD_COND_INITIALIZER;
static int ready, woken, waiting;
static pthread_mutex_t *with;
static void *waits(void *p) {
    int r = pthread_mutex_lock(with);
    waiting++;
    while (!ready) r |= pthread_cond_wait(&cc, with);
    woken++;
    r |= pthread_mutex_unlock(with);
    return (void *)(long)(r + (long)p * 0);
}
static void unlocks(void *m) { say("unlock in a cleanup handler", pthread_mutex_unlock(m)); }
static void *is_cancelled(void *p) {
    (void)p;
    pthread_mutex_lock(with);
    waiting++;
    pthread_cleanup_push(unlocks, with);
    for (;;) pthread_cond_wait(&cc, with);
    pthread_cleanup_pop(0);
    return NULL;
}
static void of_cond(const char *kind, pthread_mutex_t *m, int type) {
    pthread_t t[8];
    void *r;
    int sum = 0;
    printf("-- conditions, %s\n", kind);
    with = m;
    for (int all = 0; all < 2; all++) {
        ready = woken = waiting = 0;
        for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, waits, NULL);
        for (;;) {
            pthread_mutex_lock(m);
            int n = waiting;
            pthread_mutex_unlock(m);
            if (n == 8) break;
            usleep(1000);
        }
        SAY(pthread_mutex_lock(m));
        ready = 1;
        if (all) SAY(pthread_cond_broadcast(&cc));
        else for (int i = 0; i < 8; i++) sum |= pthread_cond_signal(&cc);
        SAY(pthread_mutex_unlock(m));
        for (int i = 0; i < 8; i++) pthread_join(t[i], &r), sum |= (int)(long)r;
        say("eight woken", woken == 8 ? sum : EINVAL);
    }
    struct timespec at = in(CLOCK_REALTIME, 30), bad = {1, -1};
    SAY(pthread_mutex_lock(m));
    SAY(pthread_cond_timedwait(&cc, m, &at));
    OTHER(try_other, m);
    SAY(pthread_cond_timedwait(&cc, m, &bad));
    OTHER(try_other, m);
    at = in(CLOCK_MONOTONIC, 30);
    SAY(pthread_cond_clockwait(&cc, m, CLOCK_MONOTONIC, &at));
    OTHER(try_other, m);
    SAY(pthread_mutex_destroy(m));
    SAY(pthread_mutex_unlock(m));
    OTHER(lock_other, m);
    if (type == PTHREAD_MUTEX_ERRORCHECK) SAY(pthread_cond_timedwait(&cc, m, &at));
    waiting = 0;
    pthread_create(&t[0], NULL, is_cancelled, NULL);
    for (;;) {
        pthread_mutex_lock(m);
        int n = waiting;
        pthread_mutex_unlock(m);
        if (n) break;
        usleep(1000);
    }
    int cancelled = pthread_cancel(t[0]);
    pthread_join(t[0], &r);
    say("pthread_cancel", cancelled);
    say("cancelled", r == PTHREAD_CANCELED ? 0 : EINVAL);
    OTHER(lock_other, m);
    SAY(pthread_mutex_lock(m));
    OTHER(timed_other, m);
    SAY(pthread_mutex_unlock(m));
}

/* ---- rwlocks */
static void *r_try(void *l) { int r = pthread_rwlock_tryrdlock(l); if (!r) pthread_rwlock_unlock(l); return (void *)(long)r; }
static void *w_try(void *l) { int r = pthread_rwlock_trywrlock(l); if (!r) pthread_rwlock_unlock(l); return (void *)(long)r; }
static void *r_timed(void *l) {
    struct timespec t = in(CLOCK_REALTIME, 30);
    int r = pthread_rwlock_timedrdlock(l, &t);
    if (!r) pthread_rwlock_unlock(l);
    return (void *)(long)r;
}
static void *w_timed(void *l) {
    struct timespec t = in(CLOCK_REALTIME, 30);
    int r = pthread_rwlock_timedwrlock(l, &t);
    if (!r) pthread_rwlock_unlock(l);
    return (void *)(long)r;
}
static void *r_clock(void *l) {
    struct timespec t = in(CLOCK_MONOTONIC, 30);
    int r = pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &t);
    if (!r) pthread_rwlock_unlock(l);
    return (void *)(long)r;
}
static void *w_clock(void *l) {
    struct timespec t = in(CLOCK_MONOTONIC, 30);
    int r = pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &t);
    if (!r) pthread_rwlock_unlock(l);
    return (void *)(long)r;
}
static void *rw_unlock(void *l) { return (void *)(long)pthread_rwlock_unlock(l); }
static volatile int writes;
static void *writer(void *l) { writes = 1; int r = pthread_rwlock_wrlock(l); writes = 2; return (void *)(long)(r | pthread_rwlock_unlock(l)); }
static void others(pthread_rwlock_t *l) {
    OTHER(r_try, l); OTHER(w_try, l); OTHER(r_timed, l); OTHER(w_timed, l); OTHER(r_clock, l); OTHER(w_clock, l);
}
static void of_rwlock(const char *kind, pthread_rwlock_t *l) {
    struct timespec t, bad = {1, 1000000000}, past = {1, 0};
    printf("-- rwlock, %s\n", kind);
    for (int round = 0; round < 2; round++) {
        SAY(pthread_rwlock_rdlock(l));
        SAY(pthread_rwlock_rdlock(l));
        SAY(pthread_rwlock_tryrdlock(l));
        SAY(pthread_rwlock_trywrlock(l));
        t = in(CLOCK_REALTIME, 20);
        SAY(pthread_rwlock_timedwrlock(l, &t));
        others(l);
        SAY(pthread_rwlock_unlock(l));
        SAY(pthread_rwlock_unlock(l));
        others(l);
        SAY(pthread_rwlock_unlock(l));
        others(l);
        SAY(pthread_rwlock_wrlock(l));
        SAY(pthread_rwlock_wrlock(l));
        SAY(pthread_rwlock_rdlock(l));
        SAY(pthread_rwlock_tryrdlock(l));
        SAY(pthread_rwlock_trywrlock(l));
        t = in(CLOCK_REALTIME, 20);
        SAY(pthread_rwlock_timedrdlock(l, &t));
        SAY(pthread_rwlock_timedwrlock(l, &t));
        others(l);
        SAY(pthread_rwlock_unlock(l));
        SAY(pthread_rwlock_timedrdlock(l, &bad));
        SAY(pthread_rwlock_timedwrlock(l, &bad));
        SAY(pthread_rwlock_clockrdlock(l, CLOCK_PROCESS_CPUTIME_ID, &past));
        SAY(pthread_rwlock_clockwrlock(l, 77, &past));
        SAY(pthread_rwlock_timedrdlock(l, &past));
        SAY(pthread_rwlock_timedwrlock(l, &past));
        SAY(pthread_rwlock_unlock(l));
        SAY(pthread_rwlock_trywrlock(l));
        others(l);
        SAY(pthread_rwlock_unlock(l));
        /* Unlocked by another thread, as glibc allows. */
        SAY(pthread_rwlock_rdlock(l));
        OTHER(rw_unlock, l);
        others(l);
        SAY(pthread_rwlock_rdlock(l));
        SAY(pthread_rwlock_unlock(l));
        others(l);
    }
    /* A reader locks again while a writer waits. */
    pthread_t w;
    void *r;
    SAY(pthread_rwlock_rdlock(l));
    writes = 0;
    pthread_create(&w, NULL, writer, l);
    while (!writes) usleep(1000);
    usleep(20000);
    SAY(pthread_rwlock_rdlock(l));
    SAY(pthread_rwlock_tryrdlock(l));
    SAY(pthread_rwlock_unlock(l));
    SAY(pthread_rwlock_unlock(l));
    say("the writer waits", writes == 1 ? 0 : EINVAL);
    SAY(pthread_rwlock_unlock(l));
    pthread_join(w, &r);
    say("the writer wrote", (int)(long)r);
    others(l);
    SAY(pthread_rwlock_destroy(l));
}

/* ---- fork with locks held */
static pthread_mutex_t fm = PTHREAD_MUTEX_INITIALIZER, fo = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t fl = PTHREAD_RWLOCK_INITIALIZER, fw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t fr = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static volatile int holds;
static void *holder(void *p) {
    (void)p;
    pthread_mutex_lock(&fo);
    pthread_rwlock_rdlock(&fw);
    holds = 1;
    while (holds == 1) usleep(1000);
    pthread_rwlock_unlock(&fw);
    pthread_mutex_unlock(&fo);
    return NULL;
}
static void *comes(void *m) {
    holds++;
    return lock_other(m);
}
static volatile int skips;
static void prepare(void) { if (skips) return; pthread_mutex_lock(&fm); pthread_mutex_lock(&fr); pthread_rwlock_wrlock(&fl); }
static void parent(void) { if (skips) return; pthread_rwlock_unlock(&fl); pthread_mutex_unlock(&fr); pthread_mutex_unlock(&fm); }
static void child(void) {
    if (skips) return;
    SAY(pthread_rwlock_unlock(&fl));
    SAY(pthread_mutex_unlock(&fr));
    SAY(pthread_mutex_init(&fr, NULL));
    SAY(pthread_mutex_unlock(&fm));
}
static void forks(void) {
    printf("-- fork\n");
    pthread_t t;
    pthread_atfork(prepare, parent, child);
    pthread_create(&t, NULL, holder, NULL);
    while (!holds) usleep(1000);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        SAY(pthread_mutex_lock(&fm));
        OTHER(try_other, &fm);
        SAY(pthread_mutex_unlock(&fm));
        OTHER(lock_other, &fm);
        OTHER(lock_other, &fr);
        SAY(pthread_mutex_trylock(&fo));
        OTHER(timed_other, &fo);
        others(&fl);
        others(&fw);
        SAY(pthread_mutex_init(&fo, NULL));
        OTHER(lock_other, &fo);
        fflush(stdout);
        _exit(7);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("the child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    holds = 2;
    pthread_join(t, NULL);
    OTHER(lock_other, &fo);
    OTHER(lock_other, &fm);
    others(&fl);
    others(&fw);
    /* Other threads wait for the forking thread's locks: in the child no thread waits. */
    for (int first = 0; first < 3; first++) {
        pthread_t who[2];
        SAY(first == 1 ? pthread_mutex_trylock(&fm) : pthread_mutex_lock(&fm));
        for (int i = 0; i < 2; i++) {
            int before = holds;
            pthread_create(&who[i], NULL, comes, &fm);
            while (holds == before) usleep(1000);
            usleep(50000);
        }
        fflush(stdout);
        skips = 1;
        pid = fork();
        if (pid == 0) {
            alarm(20);
            SAY(pthread_mutex_unlock(&fm));
            for (int i = 0; i < 2; i++) {
                SAY(pthread_mutex_lock(&fm));
                OTHER(try_other, &fm);
                SAY(pthread_mutex_unlock(&fm));
                OTHER(lock_other, &fm);
            }
            fflush(stdout);
            _exit(8);
        }
        skips = 0;
        waitpid(pid, &status, 0);
        printf("the child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        SAY(pthread_mutex_unlock(&fm));
        for (int i = 0; i < 2; i++) pthread_join(who[i], NULL);
    }
}

/* ---- destroyed by the last holder, and the memory is reused immediately */
struct job { pthread_mutex_t m; pthread_cond_t c; int done; };
static void *finishes(void *p) {
    struct job *j = p;
    pthread_mutex_lock(&j->m);
    j->done = 1;
    pthread_cond_signal(&j->c);
    pthread_mutex_unlock(&j->m);
    return NULL;
}
static void jobs(void) {
    int bad = 0;
    for (int i = 0; i < 2000; i++) {
        struct job *j = malloc(sizeof *j);
        pthread_t t;
        pthread_mutex_init(&j->m, NULL);
        pthread_cond_init(&j->c, NULL);
        j->done = 0;
        pthread_create(&t, NULL, finishes, j);
        pthread_mutex_lock(&j->m);
        while (!j->done) pthread_cond_wait(&j->c, &j->m);
        pthread_mutex_unlock(&j->m);
        bad |= pthread_mutex_destroy(&j->m);
        pthread_cond_destroy(&j->c);
        memset(j, 0x5a, sizeof *j);
        for (int k = 0; k < 50; k++) __asm__ volatile("pause");
        for (unsigned k = 0; k < sizeof *j; k++) bad |= ((unsigned char *)j)[k] != 0x5a;
        pthread_join(t, NULL);
        for (unsigned k = 0; k < sizeof *j; k++) bad |= ((unsigned char *)j)[k] != 0x5a;
        free(j);
    }
    say("locks freed at once", bad);
}

/* ---- shared between processes, robust, ceilings */
static void *dies(void *m) { return (void *)(long)pthread_mutex_lock(m); }
static void special(void) {
    pthread_mutexattr_t a;
    pthread_rwlockattr_t ra;
    struct { pthread_mutex_t m; pthread_rwlock_t l; } *s =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    printf("-- shared, robust, ceiling\n");
    pthread_mutexattr_init(&a);
    SAY(pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED));
    SAY(pthread_mutex_init(&s->m, &a));
    pthread_rwlockattr_init(&ra);
    SAY(pthread_rwlockattr_setpshared(&ra, PTHREAD_PROCESS_SHARED));
    SAY(pthread_rwlock_init(&s->l, &ra));
    SAY(pthread_mutex_lock(&s->m));
    SAY(pthread_rwlock_wrlock(&s->l));
    fflush(stdout);
    if (fork() == 0) {
        SAY(pthread_mutex_trylock(&s->m));
        OTHER(timed_other, &s->m);
        SAY(pthread_rwlock_tryrdlock(&s->l));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    SAY(pthread_mutex_unlock(&s->m));
    SAY(pthread_rwlock_unlock(&s->l));
    fflush(stdout);
    if (fork() == 0) {
        SAY(pthread_mutex_lock(&s->m));
        SAY(pthread_rwlock_rdlock(&s->l));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    SAY(pthread_mutex_trylock(&s->m));
    SAY(pthread_rwlock_trywrlock(&s->l));
    pthread_mutex_t m;
    pthread_mutexattr_init(&a);
    SAY(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST));
    SAY(pthread_mutex_init(&m, &a));
    OTHER(dies, &m);
    SAY(pthread_mutex_lock(&m));
    SAY(pthread_mutex_consistent(&m));
    SAY(pthread_mutex_unlock(&m));
    OTHER(dies, &m);
    SAY(pthread_mutex_trylock(&m));
    SAY(pthread_mutex_unlock(&m));
    SAY(pthread_mutex_lock(&m));
    SAY(pthread_mutex_destroy(&m));
    pthread_mutexattr_init(&a);
    SAY(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT));
    SAY(pthread_mutex_init(&m, &a));
    SAY(pthread_mutex_lock(&m));
    OTHER(unlock_other, &m);
    OTHER(timed_other, &m);
    SAY(pthread_mutex_unlock(&m));
    SAY(pthread_mutex_destroy(&m));
    SAY(pthread_mutex_lock(&m));
    /* A thread that ends with a plain mutex leaves it locked. */
    static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER;
    static pthread_rwlock_t left_rw = PTHREAD_RWLOCK_INITIALIZER;
    OTHER(dies, &left);
    SAY(pthread_mutex_trylock(&left));
    OTHER(timed_other, &left);
    SAY(pthread_mutex_unlock(&left));
    OTHER(lock_other, &left);
    value((void *(*)(void *))pthread_rwlock_rdlock, &left_rw);
    others(&left_rw);
    SAY(pthread_rwlock_unlock(&left_rw));
    others(&left_rw);
}

/* ---- a condition, a mutex and semaphores that a child process uses, too */
static void across_processes(void) {
    struct { pthread_mutex_t m; pthread_cond_t c; sem_t s; int turn; } *x =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t a;
    pthread_condattr_t ca;
    printf("-- across processes\n");
    for (int robust = 0; robust < 2; robust++) {
        x->turn = 0;
        pthread_mutexattr_init(&a);
        pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&a, robust);
        SAY(pthread_mutex_init(&x->m, &a));
        pthread_condattr_init(&ca);
        SAY(pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED));
        SAY(pthread_condattr_setclock(&ca, CLOCK_MONOTONIC));
        SAY(pthread_cond_init(&x->c, &ca));
        SAY(sem_init(&x->s, 1, 0));
        fflush(stdout);
        pid_t other = fork();
        for (int i = 0; i < 100; i++) {
            struct timespec late = in(CLOCK_MONOTONIC, 30000);
            int r = pthread_mutex_lock(&x->m);
            while (!r && x->turn % 2 == (other != 0))
                r = i % 3 == 0 ? pthread_cond_wait(&x->c, &x->m)
                  : i % 3 == 1 ? pthread_cond_timedwait(&x->c, &x->m, &late)
                               : pthread_cond_clockwait(&x->c, &x->m, CLOCK_MONOTONIC, &late);
            if (r) say("a turn", r);
            x->turn++;
            pthread_cond_broadcast(&x->c);
            pthread_mutex_unlock(&x->m);
        }
        if (other == 0) {
            sem_post(&x->s);
            if (robust) pthread_mutex_lock(&x->m);
            _exit(0);
        }
        SAY(sem_wait(&x->s));
        wait(NULL);
        printf("turns %d\n", x->turn);
        struct timespec soon = in(CLOCK_MONOTONIC, 20);
        int r = pthread_mutex_lock(&x->m);
        say("after its end", r);
        if (r == EOWNERDEAD) SAY(pthread_mutex_consistent(&x->m));
        SAY(pthread_cond_timedwait(&x->c, &x->m, &soon));
        SAY(pthread_mutex_unlock(&x->m));
        SAY(pthread_cond_destroy(&x->c));
        SAY(pthread_mutex_destroy(&x->m));
        SAY(sem_destroy(&x->s));
    }
    munmap(x, 4096);
}

/* ---- a thread that may be cancelled at any moment is, while it waits for a lock */
static void *(*waits_for)(void *);
static atomic_int waiting_there;
static void *locks_it(void *l) { return (void *)(long)pthread_mutex_lock(l); }
static void *reads_it(void *l) { return (void *)(long)pthread_rwlock_rdlock(l); }
static void *any_time(void *l) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    waiting_there = 1;
    return waits_for(l);
}
static void cancelled_while_waiting(const char *what, void *(*f)(void *), void *l) {
    pthread_t t;
    void *r;
    waits_for = f;
    waiting_there = 0;
    pthread_create(&t, NULL, any_time, l);
    while (!waiting_there) usleep(1000);
    usleep(30000);
    pthread_cancel(t);
    pthread_join(t, &r);
    printf("%s: cancelled %d\n", what, r == PTHREAD_CANCELED);
}
static void at_any_moment(void) {
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
    printf("-- asynchronous cancellation\n");
    SAY(pthread_mutex_lock(&m));
    cancelled_while_waiting("mutex", locks_it, &m);
    SAY(pthread_mutex_unlock(&m));
    OTHER(try_other, &m);
    SAY(pthread_mutex_unlock(&m));
    SAY(pthread_mutex_lock(&m));
    SAY(pthread_mutex_unlock(&m));
    SAY(pthread_rwlock_wrlock(&l));
    cancelled_while_waiting("reader", reads_it, &l);
    SAY(pthread_rwlock_unlock(&l));
}

/* ---- all possible keys */
static void keys(void) {
    static pthread_key_t all[PTHREAD_KEYS_MAX + 1];
    int n = 0, r;
    printf("-- keys\n");
    /* None was created: the number of the first is not valid. */
    printf("before any %s\n", name_of(pthread_setspecific(0, &n)));
    while (n <= PTHREAD_KEYS_MAX && !(r = pthread_key_create(&all[n], NULL))) n++;
    printf("keys %d, then %s\n", n, name_of(r));
    SAY(pthread_mutex_lock(&late));
    SAY(pthread_mutex_unlock(&late));
    value(lock_other, &late);
    for (int i = 0; i < n; i++) pthread_key_delete(all[i]);
}

/* ---- semaphores */
static sem_t sem;
static int result(int r) { return r ? errno : 0; }
#define SEM(call) say(#call, result(call))
static void *sem_later(void *p) { usleep(30000); sem_post(&sem); return p; }
static void *sem_cancelled(void *p) { sem_wait(&sem); return p; }
static void interrupt(int s) { (void)s; }
static volatile int is_interrupted;
static void *sem_interrupted(void *p) {
    (void)p;
    const long r = result(sem_wait(&sem));
    is_interrupted = 1;
    return (void *)r;
}
static void semaphores(void) {
    pthread_t t;
    void *r;
    printf("-- semaphores\n");
    SEM(sem_init(&sem, 0, 1));
    SEM(sem_wait(&sem));
    SEM(sem_trywait(&sem));
    struct timespec soon = in(CLOCK_REALTIME, 20), mono = in(CLOCK_MONOTONIC, 20), bad = {0, 1000000000};
    SEM(sem_timedwait(&sem, &soon));
    SEM(sem_clockwait(&sem, CLOCK_MONOTONIC, &mono));
    SEM(sem_timedwait(&sem, &bad));
    SEM(sem_clockwait(&sem, CLOCK_PROCESS_CPUTIME_ID, &mono));
    SEM(sem_post(&sem));
    SEM(sem_clockwait(&sem, CLOCK_REALTIME, &soon));
    pthread_create(&t, NULL, sem_later, NULL);
    SEM(sem_wait(&sem));
    pthread_join(t, NULL);
    pthread_create(&t, NULL, sem_cancelled, NULL);
    usleep(20000);
    pthread_cancel(t);
    pthread_join(t, &r);
    printf("cancelled in sem_wait: %d\n", r == PTHREAD_CANCELED);
    struct sigaction sa = {.sa_handler = interrupt};
    sigaction(SIGUSR2, &sa, NULL);
    pthread_create(&t, NULL, sem_interrupted, NULL);
    /* On a busy machine the first signal may be sent before the wait. */
    for (int tries = 0; tries < 200 && !is_interrupted; tries++) {
        usleep(20000);
        pthread_kill(t, SIGUSR2);
        usleep(5000);
    }
    sem_post(&sem);
    pthread_join(t, &r);
    say("sem_wait with a signal", (int)(long)r);
    SEM(sem_destroy(&sem));
}

/* ---- the names of C11 */
static mtx_t mtx;
static cnd_t cnd;
static int ready_;
static int c11_other(void *p) {
    struct timespec t = in(CLOCK_REALTIME, 20);
    (void)p;
    return mtx_trylock(&mtx) * 10 + mtx_timedlock(&mtx, &t);
}
static int c11_waits(void *p) {
    (void)p;
    int r = mtx_lock(&mtx);
    while (!ready_) r |= cnd_wait(&cnd, &mtx);
    ready_ = 2;
    r |= cnd_signal(&cnd);
    return r | mtx_unlock(&mtx);
}
#define THRD(call) printf(#call ": %d\n", call)
static void c11(void) {
    int kinds[] = {mtx_plain, mtx_timed, mtx_plain | mtx_recursive, mtx_timed | mtx_recursive};
    printf("-- C11\n");
    for (int k = 0; k < 4; k++) {
        thrd_t t;
        int r;
        memset(&mtx, 0xa5, sizeof mtx);
        THRD(mtx_init(&mtx, kinds[k]));
        THRD(cnd_init(&cnd));
        THRD(mtx_lock(&mtx));
        THRD(mtx_trylock(&mtx));
        if (k >= 2) THRD(mtx_unlock(&mtx));
        thrd_create(&t, c11_other, NULL);
        thrd_join(t, &r);
        printf("by another: %d\n", r);
        struct timespec soon = in(CLOCK_REALTIME, 20), bad = {0, -1};
        THRD(cnd_timedwait(&cnd, &mtx, &soon));
        THRD(cnd_timedwait(&cnd, &mtx, &bad));
        ready_ = 0;
        thrd_create(&t, c11_waits, NULL);
        ready_ = 1;
        THRD(cnd_broadcast(&cnd));
        while (ready_ != 2) cnd_wait(&cnd, &mtx);
        THRD(mtx_unlock(&mtx));
        thrd_join(t, &r);
        printf("who waited: %d\n", r);
        THRD(mtx_timedlock(&mtx, &soon));
        THRD(mtx_unlock(&mtx));
        cnd_destroy(&cnd);
        mtx_destroy(&mtx);
    }
    THRD(mtx_init(&mtx, 77));
}

/* ---- a key's destructor locks when its thread has ended */
static pthread_rwlock_t late_rw = PTHREAD_RWLOCK_INITIALIZER;
static void destructor(void *p) {
    (void)p;
    SAY(pthread_mutex_lock(&late));
    SAY(pthread_rwlock_rdlock(&late_rw));
    SAY(pthread_rwlock_unlock(&late_rw));
    SAY(pthread_mutex_unlock(&late));
}
static pthread_key_t key;
static void *ends(void *p) { pthread_setspecific(key, p); return NULL; }

/* All parts, or with an argument half of them: 1 or 2. Most of the time is waiting. */
int main(int n, char **arguments) {
    int part = n > 1 ? atoi(arguments[1]) : 0;
    /* As Go does: the auxiliary vector is after the environment, which is after the arguments. */
    char **end = arguments + n + 1;
    while (*end) end++;
    long pages = 0;
    for (unsigned long *auxiliary = (unsigned long *)(end + 1); *auxiliary; auxiliary += 2)
        if (*auxiliary == 6 /* AT_PAGESZ */) pages = (long)auxiliary[1];
    printf("page size %ld, LD_PRELOAD %s\n", pages, getenv("LD_PRELOAD") ? "set" : "not set");
    static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
    static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    static pthread_mutex_t check = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    alarm(40);
    setvbuf(stdout, NULL, _IOLBF, 1 << 12);
    /* A single part waits for a quarter of the timeouts; 0 is all of them. */
#define PART(number) (part == 0 || part == (number))
    if (PART(1)) {
        of_mutex("static", &plain, PTHREAD_MUTEX_NORMAL);
        of_mutex("static recursive", &recursive, PTHREAD_MUTEX_RECURSIVE);
        of_mutex("static errorcheck", &check, PTHREAD_MUTEX_ERRORCHECK);
        of_mutex("static adaptive", &adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
    }
    int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    const char *names[] = {"normal", "recursive", "errorcheck", "adaptive"};
    for (int i = 0; i < 4; i++) {
        if (!PART(i < 2 ? 1 : 3)) continue;
        pthread_mutexattr_t a;
        pthread_mutex_t *m = malloc(sizeof *m);
        memset(m, 0xa5, sizeof *m);
        pthread_mutexattr_init(&a);
        pthread_mutexattr_settype(&a, types[i]);
        SAY(pthread_mutex_init(m, &a));
        of_mutex(names[i], m, types[i]);
        SAY(pthread_mutex_init(m, &a));
        of_cond(names[i], m, types[i]);
        SAY(pthread_mutex_destroy(m));
        free(m);
    }
    if (PART(3)) {
        of_cond("static", &cm, PTHREAD_MUTEX_NORMAL);
        foreign();
    }
    if (PART(2)) {
        static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
        of_rwlock("static", &rw);
    }
    int kinds[] = {PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NP};
    for (int i = 0; i < 2; i++) {
        if (!PART(i ? 4 : 2)) continue;
        pthread_rwlockattr_t a;
        pthread_rwlock_t l;
        memset(&l, 0xa5, sizeof l);
        pthread_rwlockattr_init(&a);
        pthread_rwlockattr_setkind_np(&a, kinds[i]);
        SAY(pthread_rwlock_init(&l, &a));
        of_rwlock(i ? "prefers writers" : "prefers readers", &l);
    }
    if (PART(3)) {
        forks();
        jobs();
        special();
        across_processes();
    }
    if (PART(4)) {
        semaphores();
        c11();
        pthread_key_create(&key, destructor);
        value(ends, &key);
    }
    if (PART(1)) {
        at_any_moment();
        keys();
    }
    printf("done\n");
    return 0;
}
