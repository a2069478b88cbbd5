/* CUDA launches and copies, by two threads. */
#include "count.h"
#include <stddef.h>
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuMemcpyHtoDAsync_v2(unsigned long long, const void *, size_t, void *);
static atomic_int copied, launched;
static void *launches(void *p) {
    while (!copied) usleep(100);
    for (int i = 0; i < 300; i++) {
        /* A large copy sleeps with the lock, and this launch must wait for it. */
        if (i % 100 == 0) until_inside(getpid(), SYS_clock_nanosleep);
        cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    }
    launched = 1;
    return p;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, launches, 0);
    for (int i = 0; i < 100; i++) cuMemcpyHtoDAsync_v2(0, 0, 4096, 0);
    copied = 1;
    int large = 0;
    while (!launched || large < 3) cuMemcpyHtoDAsync_v2(0, 0, 1 << 20, 0), large++;
    pthread_join(t, 0);
    printf("large %d\n", large);
    return 0;
}
