#include <pthread.h>
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
__attribute__((noinline)) void push_work(volatile long *n) {
    pthread_mutex_lock(&queue_lock);
    *n += STEP;
    pthread_mutex_unlock(&queue_lock);
}

int main(void) {
    volatile long n = 0;
    for (int i = 0; i < 100; i++) push_work(&n);
    return n == 100 * STEP ? 0 : 1;
}
