// busy THREADS TIMES: threads that each take their own lock so many times. Prints "ok", and ends with 7.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t locks[64];
static long times;

static void *work(void *mine)
{
	for (long i = 0; i < times; i++) {
		pthread_mutex_lock(mine);
		pthread_mutex_unlock(mine);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t threads[64];
	times = argc > 2 ? atol(argv[2]) : 1000;
	for (int i = 0; i < n; i++)
		if (pthread_create(threads + i, 0, work, locks + i))
			return 1;
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], 0);
	puts("ok");
	return 7;
}
