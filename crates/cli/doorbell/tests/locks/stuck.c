/* Two threads that deadlock, in a process that is then killed. */
#include "count.h"
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static atomic_int ready, second;
static void *other(void *p) {
    second = gettid();
    pthread_mutex_lock(&b);
    ready++;
    while (ready < 2) usleep(100);
    pthread_mutex_lock(&a);
    return p;
}
static void *killer(void *p) {
    while (ready < 2) usleep(100);
    until_inside(getpid(), SYS_futex);
    until_inside(second, SYS_futex);
    kill(getpid(), SIGKILL);
    return p;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, other, 0);
    pthread_create(&t, 0, killer, 0);
    pthread_mutex_lock(&a);
    ready++;
    while (ready < 2) usleep(100);
    pthread_mutex_lock(&b);
    return 0;
}
