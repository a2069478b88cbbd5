/* With -DYEARS=n: a library whose clock_gettime is n years ahead, as faketime's can be. Else: a program whose mutex is unlocked by a
 * thread that does not own it, while another waits for it. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef YEARS
int clock_gettime(clockid_t clock, struct timespec *t) {
    int r = syscall(SYS_clock_gettime, clock, t);
    t->tv_sec += YEARS * 31557600L;
    return r;
}
#else
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static void *waits(void *p) { pthread_mutex_lock(&m); pthread_mutex_unlock(&m); return p; }
static void *unlocks(void *p) { pthread_mutex_unlock(&m); return p; }

int main(void) {
    alarm(10);
    pthread_t a, b;
    pthread_mutex_lock(&m);
    pthread_create(&a, NULL, waits, NULL);
    usleep(300000);
    pthread_create(&b, NULL, unlocks, NULL);
    pthread_join(b, NULL);
    pthread_join(a, NULL);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    printf("year %ld\n", 1970 + t.tv_sec / 31557600);
    return 0;
}
#endif
