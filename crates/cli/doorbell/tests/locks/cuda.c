/* A libcuda whose calls take locks: a launch reads what a copy writes. */
#include <pthread.h>
#include <stddef.h>
#include <time.h>
static pthread_rwlock_t state = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER, pool = PTHREAD_MUTEX_INITIALIZER;
/* doorbell recognises CUDA's library by this function. */
int cuDriverGetVersion(int *v) { return *v = 13000, 0; }
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **args, void **extra) {
    pthread_rwlock_rdlock(&state);
    pthread_mutex_lock(&queue);
    pthread_mutex_unlock(&queue);
    pthread_rwlock_unlock(&state);
    return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t n, void *stream) {
    for (size_t i = 0; i < 1 + n / 65536; i++) {
        pthread_mutex_lock(&pool);
        pthread_mutex_unlock(&pool);
    }
    pthread_rwlock_wrlock(&state);
    struct timespec t = {.tv_nsec = n > 65536 ? 30000000 : 0};
    if (t.tv_nsec) clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0);
    pthread_rwlock_unlock(&state);
    return 0;
}
