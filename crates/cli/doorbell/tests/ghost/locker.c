/* also: - */
/* A helper: 1,000 operations on a lock, and the variables that only doorbell's agent may see. Ends with 3. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

int main(void)
{
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&m);
        pthread_mutex_unlock(&m);
    }
    printf("locker: %s %s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "-", getenv("DOORBELL_SESSION") ? "a session" : "-");
    return 3;
}
