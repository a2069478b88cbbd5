/* One thread holds a mutex, then a rwlock, while another is known to wait for it. */
#include "count.h"
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int held, wanted, waiter;

static void *holds(void *p) {
    pthread_setname_np(pthread_self(), "keeper");
    printf("holder %d\n", gettid());
    P(mutex_lock, &m);
    held = 1;
    while (wanted < 1) usleep(100);
    until_inside(waiter, SYS_futex);
    usleep(100000);
    P(mutex_unlock, &m);
    P(rwlock_wrlock, &l);
    held = 2;
    while (wanted < 2) usleep(100);
    until_inside(waiter, SYS_futex);
    usleep(50000);
    P(rwlock_unlock, &l);
    return p;
}

int main(void) {
    pthread_t t;
    waiter = gettid();
    pthread_create(&t, 0, holds, 0);
    printf("waiter %d\n", waiter);
    while (held < 1) usleep(100);
    wanted = 1;
    P(mutex_lock, &m);
    P(mutex_unlock, &m);
    while (held < 2) usleep(100);
    wanted = 2;
    P(rwlock_rdlock, &l);
    P(rwlock_unlock, &l);
    pthread_join(t, 0);
    print_counts();
    return 0;
}
