#include <pthread.h>
static pthread_mutex_t lock_of_library = PTHREAD_MUTEX_INITIALIZER;
long n;
void NAME(void) {
    pthread_mutex_lock(&lock_of_library);
    n++;
    pthread_mutex_unlock(&lock_of_library);
}
