/* A thread of low priority holds a lock that one of high priority waits for. */
#include "count.h"
#include <sched.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static atomic_int held, wanted;
static void *low(void *p) {
    struct sched_param s = {.sched_priority = 10};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &s)) { printf("refused\n"); fflush(stdout); _exit(77); }
    printf("low %d\n", gettid());
    P(mutex_lock, &m);
    held = 1;
    while (!wanted) usleep(100);
    until_inside(getpid(), SYS_futex);
    usleep(50000);
    P(mutex_unlock, &m);
    return p;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, low, 0);
    while (!held) usleep(100);
    struct sched_param s = {.sched_priority = 20};
    if (sched_setscheduler(0, SCHED_RR, &s)) return 77;
    printf("high %d\n", gettid());
    wanted = 1;
    P(mutex_lock, &m);
    P(mutex_unlock, &m);
    pthread_join(t, 0);
    print_counts();
    return 0;
}
