/* also: - */
/* A helper: busy THREADS SECONDS: each thread takes a lock that no other takes, again and again. Ends with 7. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t m[64];
static time_t end;

static void *work(void *mine)
{
    while (time(NULL) < end)
        for (int i = 0; i < 1000; i++) {
            pthread_mutex_lock(mine);
            pthread_mutex_unlock(mine);
        }
    return NULL;
}

int main(int argc, char **argv)
{
    int n = atoi(argv[1]), started = 0;
    pthread_t t[64];
    end = time(NULL) + atoi(argv[2]);
    for (int i = 1; i < n; i++)
        started += !pthread_create(&t[started], NULL, work, &m[i]);
    work(&m[0]);
    while (started)
        pthread_join(t[--started], NULL);
    puts("done");
    return 7;
}
