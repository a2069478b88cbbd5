// wild SEED: stores at random into the memory that it shares with doorbell, while three threads take a lock.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *none)
{
	for (int i = 0; i < 100000; i++) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		if (i % 1000 == 0)
			usleep(200);
	}
	return none;
}

int main(int argc, char **argv)
{
	unsigned long from[64], to[64];
	char line[512];
	int n = 0;
	pthread_t threads[3];
	srandom(atoi(argv[1]));
	for (int i = 0; i < 3; i++)
		pthread_create(threads + i, 0, work, 0);
	usleep(5000);
	FILE *maps = fopen("/proc/self/maps", "r");
	while (n < 64 && fgets(line, sizeof line, maps))
		if (strstr(line, "doorbell-region") && strstr(line, "rw-s"))
			n += sscanf(line, "%lx-%lx", from + n, to + n) == 2;
	fclose(maps);
	for (int k = 0; n && k < 200; k++) {
		int i = random() % n;
		unsigned long bytes = to[i] - from[i];
		if (bytes > 1 << 20 && random() % 2)
			bytes = 8192;
		for (int j = 0; j < 2000; j++) {
			unsigned long *at = (unsigned long *)(from[i] + (random() % bytes & ~7UL));
			switch (random() % 4) {
			case 0: *at = ~0UL; break;
			case 1: *at = random() * 0x100000001UL; break;
			case 2: *at += 1UL << (random() % 60); break;
			default: *at = 0;
			}
		}
		usleep(300);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	return 7;
}
