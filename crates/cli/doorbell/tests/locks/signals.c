/* sem_post in a signal handler, as POSIX allows, which may interrupt the program anywhere. */
#include "count.h"
#include <sys/time.h>
static sem_t s;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static void tick(int n) { (void)n; int e = errno; S(sem_post, &s); errno = e; }
int main(void) {
    S(sem_init, &s, 0, 0);
    signal(SIGALRM, tick);
    struct itimerval i = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &i, 0);
    long sum = 0;
    while (n_sem_post < 300) for (int k = 0; k < 1000; k++) { P(mutex_lock, &m); sum++; P(mutex_unlock, &m); }
    struct itimerval off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &off, 0);
    int value;
    sem_getvalue(&s, &value);
    printf("posts %d\n", value == n_sem_post && sum == n_mutex_lock);
    print_counts();
    return 0;
}
