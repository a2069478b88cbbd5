/* Every function, with every kind of lock and most results that it can have. Prints results only: the same with and
 * without recording. */
#include "count.h"

static int line;

/* Prints a result, and errno if the call changed it. */
static void said(const char *what, int r) { printf("%03d %s = %d errno %d\n", line++, what, r, errno); errno = 7; }
#define R(what, call) do { errno = 7; int r_ = (call); said(what, r_); } while (0)

static pthread_mutex_t *mutex;
static pthread_rwlock_t *rwlock;
static sem_t *sem;

static void *mutex_of_another(void *p) {
    (void)p;
    struct timespec past = in_ms(CLOCK_REALTIME, -10), soon = in_ms(CLOCK_REALTIME, 5), mono = in_ms(CLOCK_MONOTONIC, 5);
    struct timespec bad = {0, 2000000000L};
    R("other trylock", P(mutex_trylock, mutex));
    R("other timedlock past", P(mutex_timedlock, mutex, &past));
    R("other timedlock soon", P(mutex_timedlock, mutex, &soon));
    R("other timedlock bad", P(mutex_timedlock, mutex, &bad));
    R("other clocklock", P(mutex_clocklock, mutex, CLOCK_MONOTONIC, &mono));
    R("other clocklock cpu clock", P(mutex_clocklock, mutex, CLOCK_PROCESS_CPUTIME_ID, &mono));
    return 0;
}

static void in_thread(void *(*f)(void *)) {
    pthread_t t;
    pthread_create(&t, 0, f, 0);
    pthread_join(t, 0);
}

static void *dies_with_it(void *p) { (void)p; R("dying lock", P(mutex_lock, mutex)); return 0; }

static void mutexes(void) {
    int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    int protocols[] = {PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT};
    for (int robust = 0; robust < 2; robust++)
    for (int shared = 0; shared < 2; shared++)
    for (int p = 0; p < 2; p++)
    for (int t = 0; t < 4; t++) {
        pthread_mutex_t m;
        pthread_mutexattr_t a;
        mutex = &m;
        pthread_mutexattr_init(&a);
        pthread_mutexattr_settype(&a, types[t]);
        pthread_mutexattr_setprotocol(&a, protocols[p]);
        pthread_mutexattr_setpshared(&a, shared);
        pthread_mutexattr_setrobust(&a, robust);
        printf("mutex type %d protocol %d shared %d robust %d\n", t, p, shared, robust);
        R("init", P(mutex_init, &m, &a));
        R("lock", P(mutex_lock, &m));
        R("trylock own", P(mutex_trylock, &m));
        if (t == 1) R("unlock again", P(mutex_unlock, &m));
        if (t == 1 || t == 2) {
            struct timespec soon = in_ms(CLOCK_REALTIME, 5);
            R("lock own", P(mutex_lock, &m));
            R("timedlock own", P(mutex_timedlock, &m, &soon));
            R("clocklock own", P(mutex_clocklock, &m, CLOCK_REALTIME, &soon));
            if (t == 1) for (int i = 0; i < 3; i++) R("unlock again", P(mutex_unlock, &m));
        }
        in_thread(mutex_of_another);
        R("destroy locked", P(mutex_destroy, &m));
        R("unlock", P(mutex_unlock, &m));
        if (t == 1 || t == 2) R("unlock free", P(mutex_unlock, &m));
        struct timespec soon = in_ms(CLOCK_REALTIME, 1000), bad = {0, -1};
        R("timedlock free", P(mutex_timedlock, &m, &soon));
        R("unlock", P(mutex_unlock, &m));
        R("clocklock free, bad time", P(mutex_clocklock, &m, CLOCK_REALTIME, &bad));
        R("unlock", P(mutex_unlock, &m));
        R("clocklock free, cpu clock", P(mutex_clocklock, &m, CLOCK_PROCESS_CPUTIME_ID, &soon));
        R("trylock free", P(mutex_trylock, &m));
        R("unlock", P(mutex_unlock, &m));
        if (robust) {
            in_thread(dies_with_it);
            int r = P(mutex_lock, &m);
            said("lock of a dead owner", r);
            if (r == EOWNERDEAD) R("consistent", pthread_mutex_consistent(&m));
            R("unlock", P(mutex_unlock, &m));
            in_thread(dies_with_it);
            R("trylock of a dead owner", P(mutex_trylock, &m));
            R("unlock, not consistent", P(mutex_unlock, &m));
            R("lock beyond recovery", P(mutex_lock, &m));
        }
        R("destroy", P(mutex_destroy, &m));
    }
    pthread_mutexattr_t a;
    pthread_mutex_t m;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_PROTECT);
    R("init with ceiling", P(mutex_init, &m, &a));
    R("lock with ceiling", P(mutex_lock, &m));
    R("unlock with ceiling", P(mutex_unlock, &m));
    R("destroy", P(mutex_destroy, &m));
}

static void *rwlock_of_another(void *p) {
    (void)p;
    struct timespec soon = in_ms(CLOCK_REALTIME, 5), mono = in_ms(CLOCK_MONOTONIC, 5), bad = {0, 1000000000L};
    R("other tryrd", P(rwlock_tryrdlock, rwlock));
    R("other trywr", P(rwlock_trywrlock, rwlock));
    R("other timedrd", P(rwlock_timedrdlock, rwlock, &soon));
    R("other timedwr", P(rwlock_timedwrlock, rwlock, &soon));
    R("other clockrd", P(rwlock_clockrdlock, rwlock, CLOCK_MONOTONIC, &mono));
    R("other clockwr", P(rwlock_clockwrlock, rwlock, CLOCK_MONOTONIC, &mono));
    R("other timedrd bad", P(rwlock_timedrdlock, rwlock, &bad));
    R("other clockwr bad clock", P(rwlock_clockwrlock, rwlock, CLOCK_PROCESS_CPUTIME_ID, &mono));
    return 0;
}

static void *writer_only(void *p) {
    (void)p;
    struct timespec soon = in_ms(CLOCK_REALTIME, 5);
    R("other trywr", P(rwlock_trywrlock, rwlock));
    R("other timedwr", P(rwlock_timedwrlock, rwlock, &soon));
    return 0;
}

static void rwlocks(void) {
    for (int shared = 0; shared < 2; shared++)
    for (int kind = 0; kind < 3; kind++) {
        pthread_rwlock_t l;
        pthread_rwlockattr_t a;
        rwlock = &l;
        pthread_rwlockattr_init(&a);
        pthread_rwlockattr_setkind_np(&a, kind);
        pthread_rwlockattr_setpshared(&a, shared);
        printf("rwlock kind %d shared %d\n", kind, shared);
        struct timespec soon = in_ms(CLOCK_REALTIME, 1000), mono = in_ms(CLOCK_MONOTONIC, 1000), bad = {0, 1000000000L};
        R("init", P(rwlock_init, &l, &a));
        R("rd", P(rwlock_rdlock, &l));
        R("rd again", P(rwlock_rdlock, &l));
        R("tryrd", P(rwlock_tryrdlock, &l));
        R("trywr under rd", P(rwlock_trywrlock, &l));
        in_thread(writer_only);
        for (int i = 0; i < 3; i++) R("unlock", P(rwlock_unlock, &l));
        R("wr", P(rwlock_wrlock, &l));
        R("wr own", P(rwlock_wrlock, &l));
        R("rd own", P(rwlock_rdlock, &l));
        R("timedwr own", P(rwlock_timedwrlock, &l, &soon));
        R("clockrd own", P(rwlock_clockrdlock, &l, CLOCK_MONOTONIC, &mono));
        in_thread(rwlock_of_another);
        R("unlock", P(rwlock_unlock, &l));
        R("timedrd free", P(rwlock_timedrdlock, &l, &soon));
        R("unlock", P(rwlock_unlock, &l));
        R("timedrd free, bad time", P(rwlock_timedrdlock, &l, &bad));
        R("clockrd free", P(rwlock_clockrdlock, &l, CLOCK_MONOTONIC, &mono));
        R("unlock", P(rwlock_unlock, &l));
        R("timedwr free", P(rwlock_timedwrlock, &l, &soon));
        R("unlock", P(rwlock_unlock, &l));
        R("clockwr free", P(rwlock_clockwrlock, &l, CLOCK_REALTIME, &soon));
        R("unlock", P(rwlock_unlock, &l));
        R("clockwr free, bad clock", P(rwlock_clockwrlock, &l, CLOCK_PROCESS_CPUTIME_ID, &soon));
        R("trywr", P(rwlock_trywrlock, &l));
        R("unlock", P(rwlock_unlock, &l));
        R("destroy", P(rwlock_destroy, &l));
    }
}

static pthread_cond_t cond;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static int turn;

static void *answers(void *p) {
    for (int i = 0; i < 100; i++) {
        P(mutex_lock, &guard);
        while (turn % 2 == 0) P(cond_wait, &cond, &guard);
        turn++;
        P(cond_signal, &cond);
        P(mutex_unlock, &guard);
    }
    return p;
}

static void conditions(void) {
    for (int type = 0; type < 3; type++) {
        pthread_mutexattr_t a;
        pthread_mutex_t m;
        pthread_mutexattr_init(&a);
        pthread_mutexattr_settype(&a, type);
        P(mutex_init, &m, &a);
        struct timespec past = in_ms(CLOCK_REALTIME, -5), soon = in_ms(CLOCK_REALTIME, 5), mono = in_ms(CLOCK_MONOTONIC, 5);
        struct timespec bad = {0, -1};
        R("cond init", P(cond_init, &cond, 0));
        R("lock", P(mutex_lock, &m));
        if (type == 1) R("lock twice", P(mutex_lock, &m));
        R("timedwait past", P(cond_timedwait, &cond, &m, &past));
        R("timedwait soon", P(cond_timedwait, &cond, &m, &soon));
        R("timedwait bad", P(cond_timedwait, &cond, &m, &bad));
        R("clockwait", P(cond_clockwait, &cond, &m, CLOCK_MONOTONIC, &mono));
        R("clockwait bad clock", P(cond_clockwait, &cond, &m, CLOCK_PROCESS_CPUTIME_ID, &mono));
        R("signal", P(cond_signal, &cond));
        R("broadcast", P(cond_broadcast, &cond));
        R("unlock", P(mutex_unlock, &m));
        if (type == 1) R("unlock again", P(mutex_unlock, &m));
        if (type == 2) R("wait without it", P(cond_timedwait, &cond, &m, &soon));
        R("cond destroy", P(cond_destroy, &cond));
        P(mutex_destroy, &m);
    }
    P(cond_init, &cond, 0);
    pthread_t t;
    pthread_create(&t, 0, answers, 0);
    for (int i = 0; i < 100; i++) {
        P(mutex_lock, &guard);
        while (turn % 2 == 1) P(cond_wait, &cond, &guard);
        turn++;
        P(cond_signal, &cond);
        P(mutex_unlock, &guard);
    }
    pthread_join(t, 0);
    R("turns", turn);
    P(cond_destroy, &cond);
}

static void *posts_later(void *p) { usleep(20000); S(sem_post, sem); return p; }

static void semaphores(void) {
    for (int shared = 0; shared < 2; shared++) {
        sem_t s;
        sem = &s;
        struct timespec past = in_ms(CLOCK_REALTIME, -5), soon = in_ms(CLOCK_REALTIME, 5), mono = in_ms(CLOCK_MONOTONIC, 5);
        struct timespec bad = {0, -1};
        R("sem init", S(sem_init, &s, shared, 2));
        R("wait", S(sem_wait, &s));
        R("trywait", S(sem_trywait, &s));
        R("trywait none", S(sem_trywait, &s));
        R("timedwait past", S(sem_timedwait, &s, &past));
        R("timedwait soon", S(sem_timedwait, &s, &soon));
        R("timedwait bad", S(sem_timedwait, &s, &bad));
        R("clockwait", S(sem_clockwait, &s, CLOCK_MONOTONIC, &mono));
        R("clockwait bad clock", S(sem_clockwait, &s, CLOCK_PROCESS_CPUTIME_ID, &mono));
        R("post", S(sem_post, &s));
        R("timedwait one, bad time", S(sem_timedwait, &s, &bad));
        R("timedwait one", S(sem_timedwait, &s, &soon));
        in_thread(posts_later);
        R("wait for it", S(sem_wait, &s));
        pthread_t t;
        pthread_create(&t, 0, posts_later, 0);
        R("wait until it comes", S(sem_wait, &s));
        pthread_join(t, 0);
        R("sem destroy", S(sem_destroy, &s));
    }
    sem_t s;
    R("sem init too much", S(sem_init, &s, 0, 0x80000000u));
    R("sem init full", S(sem_init, &s, 0, 0x7fffffff));
    R("post full", S(sem_post, &s));
}

static mtx_t mtx;
static cnd_t cnd;

static int mtx_of_another(void *p) {
    struct timespec soon = in_ms(CLOCK_REALTIME, 5);
    R("other mtx_trylock", C11(mutex_trylock, mtx_trylock, &mtx));
    R("other mtx_timedlock", C11(mutex_timedlock, mtx_timedlock, &mtx, &soon));
    (void)p;
    return 5;
}

static int mtx_answers(void *p) {
    for (int i = 0; i < 100; i++) {
        C11(mutex_lock, mtx_lock, &mtx);
        while (turn % 2 == 0) C11(cond_wait, cnd_wait, &cnd, &mtx);
        turn++;
        C11(cond_broadcast, cnd_broadcast, &cnd);
        C11(mutex_unlock, mtx_unlock, &mtx);
    }
    (void)p;
    return 6;
}

static int mtx_dies(void *p) { (void)p; return C11(mutex_lock, mtx_lock, &mtx); }

static void c11(void) {
    int kinds[] = {mtx_plain, mtx_timed, mtx_plain | mtx_recursive, mtx_timed | mtx_recursive};
    thrd_t t;
    int r;
    for (int k = 0; k < 4; k++) {
        printf("mtx %d\n", k);
        R("mtx_init", C11(mutex_init, mtx_init, &mtx, kinds[k]));
        R("mtx_lock", C11(mutex_lock, mtx_lock, &mtx));
        R("mtx_trylock own", C11(mutex_trylock, mtx_trylock, &mtx));
        if (k >= 2) R("mtx_unlock again", C11(mutex_unlock, mtx_unlock, &mtx));
        thrd_create(&t, mtx_of_another, 0);
        thrd_join(t, &r);
        R("joined", r);
        R("mtx_unlock", C11(mutex_unlock, mtx_unlock, &mtx));
        struct timespec soon = in_ms(CLOCK_REALTIME, 5), bad = {0, -1};
        R("mtx_timedlock free", C11(mutex_timedlock, mtx_timedlock, &mtx, &soon));
        R("cnd_init", C11(cond_init, cnd_init, &cnd));
        R("cnd_timedwait", C11(cond_timedwait, cnd_timedwait, &cnd, &mtx, &soon));
        R("cnd_timedwait bad", C11(cond_timedwait, cnd_timedwait, &cnd, &mtx, &bad));
        R("cnd_signal", C11(cond_signal, cnd_signal, &cnd));
        R("mtx_unlock", C11(mutex_unlock, mtx_unlock, &mtx));
        turn = 0;
        thrd_create(&t, mtx_answers, 0);
        for (int i = 0; i < 100; i++) {
            C11(mutex_lock, mtx_lock, &mtx);
            while (turn % 2 == 1) C11(cond_wait, cnd_wait, &cnd, &mtx);
            turn++;
            C11(cond_signal, cnd_signal, &cnd);
            C11(mutex_unlock, mtx_unlock, &mtx);
        }
        thrd_join(t, &r);
        R("turns", turn);
        thrd_create(&t, mtx_dies, 0);
        thrd_join(t, &r);
        R("mtx_trylock of the dead", C11(mutex_trylock, mtx_trylock, &mtx));
        C11(cond_destroy, cnd_destroy, &cnd);
        C11(mutex_destroy, mtx_destroy, &mtx);
    }
    R("mtx_init of no kind", C11(mutex_init, mtx_init, &mtx, 77));
}

/* A mutex, a condition and a semaphore that a child process uses, too. The child's calls are not counted. */
static void across_processes(void) {
    struct shared { pthread_mutex_t m; pthread_cond_t c; sem_t s; int turn; } *x =
        mmap(0, sizeof *x, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t a;
    pthread_condattr_t ca;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_condattr_init(&ca);
    pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
    R("shared mutex", P(mutex_init, &x->m, &a));
    R("shared condition", P(cond_init, &x->c, &ca));
    R("shared semaphore", S(sem_init, &x->s, 1, 0));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++) {
            pthread_mutex_lock(&x->m);
            while (x->turn % 2 == 0) pthread_cond_wait(&x->c, &x->m);
            x->turn++;
            pthread_cond_signal(&x->c);
            pthread_mutex_unlock(&x->m);
        }
        sem_post(&x->s);
        _exit(7);
    }
    for (int i = 0; i < 100; i++) {
        struct timespec late = in_ms(CLOCK_MONOTONIC, 20000);
        P(mutex_lock, &x->m);
        while (x->turn % 2 == 1) {
            if (i % 2) P(cond_timedwait, &x->c, &x->m, &late);
            else P(cond_clockwait, &x->c, &x->m, CLOCK_MONOTONIC, &late);
        }
        x->turn++;
        P(cond_broadcast, &x->c);
        P(mutex_unlock, &x->m);
    }
    R("its semaphore", S(sem_wait, &x->s));
    int status;
    waitpid(child, &status, 0);
    R("the child", WEXITSTATUS(status));
    R("turns", x->turn);
    R("destroy", P(cond_destroy, &x->c));
    R("destroy", P(mutex_destroy, &x->m));
    S(sem_destroy, &x->s);
    munmap(x, sizeof *x);
}

int main(void) {
    mutexes();
    rwlocks();
    conditions();
    semaphores();
    c11();
    across_processes();
    print_counts();
    return 3;
}
