/* On one CPU: a third thread keeps the holder of a lock off the CPU, while one of high priority waits for the lock. */
#include "count.h"
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static atomic_int held, wanted, stop, named;
static void real_time(int priority) {
    struct sched_param s = {.sched_priority = priority};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &s)) { printf("refused\n"); fflush(stdout); _exit(77); }
}
static long us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}
static void *low(void *p) {
    real_time(10);
    printf("low %d\n", gettid());
    P(mutex_lock, &m);
    held = 1;
    while (!stop) { }
    P(mutex_unlock, &m);
    return p;
}
static void *middle(void *p) {
    /* Makes no recorded calls: no lock, and its policy is set by a raw system call. */
    struct sched_param s = {.sched_priority = 15};
    prctl(PR_SET_NAME, "hog");
    syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &s);
    named = gettid();
    while (!wanted) usleep(500);
    for (long from = us(); us() - from < 100000;) { }
    stop = 1;
    return p;
}
int main(void) {
    pthread_t t[2];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    real_time(20);
    printf("high %d\n", gettid());
    pthread_create(&t[0], 0, low, 0);
    pthread_create(&t[1], 0, middle, 0);
    while (!held) usleep(500);
    wanted = 1;
    P(mutex_lock, &m);
    P(mutex_unlock, &m);
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    printf("middle %d\n", named);
    print_counts();
    return 0;
}
