/* 2 million locks are made and never taken: a small file. A view of it takes no gigabyte.
   record: --on-full wait
   last: --on-full wait */
#include <pthread.h>

int main(void)
{
    static pthread_mutex_t m[4096];
    for (int i = 0; i < 2000000; i++)
        pthread_mutex_init(&m[i % 4096], NULL);
    return 0;
}
