/* Locks all its memory, present and future, then uses mutexes in threads. `mlockall user`: as an ordinary user within the limit. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long n;

static void *work(void *p) {
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&m);
        n++;
        pthread_mutex_unlock(&m);
    }
    return p;
}

/* A line of /proc/self/status, in KiB. */
static long status(const char *key) {
    char line[256];
    long value = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) sscanf(line + strlen(key), " %ld", &value);
    if (f) fclose(f);
    return value;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "user")) {
        struct rlimit limit;
        getrlimit(RLIMIT_MEMLOCK, &limit);
        /* (It does not request more, even if that is allowed.) */
        limit.rlim_cur = limit.rlim_max < 64 << 20 ? limit.rlim_max : 64 << 20;
        if (setrlimit(RLIMIT_MEMLOCK, &limit)) return perror("setrlimit"), 2;
        if (!geteuid() && setresuid(65534, 65534, 65534)) return perror("setresuid"), 2;
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) return perror("mlockall"), 1;
    pthread_t t[4];
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 256 << 10);
    for (int i = 0; i < 4; i++)
        if (pthread_create(&t[i], &a, work, 0)) return puts("no thread"), 1;
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    printf("sum %ld\n", n);
    fprintf(stderr, "locked %ld KiB\n", status("VmLck:"));
    return 0;
}
