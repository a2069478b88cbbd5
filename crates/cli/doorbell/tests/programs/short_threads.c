/* short_threads N SIDE_BY_SIDE: N threads that live for two locks each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static long n;

static void *work(void *p) {
    pthread_mutex_lock(&a);
    pthread_mutex_lock(&b);
    n++;
    pthread_mutex_unlock(&b);
    pthread_mutex_unlock(&a);
    return p;
}

int main(int argc, char **argv) {
    int all = argc > 1 ? atoi(argv[1]) : 10000, side = argc > 2 ? atoi(argv[2]) : 1, made = 0;
    pthread_t t[1000];
    if (side < 1 || side > 1000) return 2;
    while (made < all) {
        int now = all - made < side ? all - made : side;
        for (int i = 0; i < now; i++)
            if (pthread_create(&t[i], 0, work, 0)) return puts("no thread"), 1;
        for (int i = 0; i < now; i++) pthread_join(t[i], 0);
        made += now;
    }
    printf("threads %d sum %ld\n", made, n);
    return 0;
}
