/* 30 threads, 20,000 operations each on one lock: the sum is right. As is what libgomp and short threads do.
   expect: locks == 600000 or not whole
   cannot: run under `pi` the kernel hands a mutex that many want from thread to thread
   limit: 100 */
#include "around.h"

static long sum;
static pthread_barrier_t together;

static void *work(void *unused)
{
    pthread_barrier_wait(&together);
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&around_lock);
        sum++;
        pthread_mutex_unlock(&around_lock);
    }
    return unused;
}

int main(void)
{
    pthread_t t[30];
    pthread_barrier_init(&together, NULL, 30);
    for (int i = 0; i < 30; i++)
        pthread_create(&t[i], NULL, work, NULL);
    for (int i = 0; i < 30; i++)
        pthread_join(t[i], NULL);
    printf("%ld\n", sum);
    return 0;
}
