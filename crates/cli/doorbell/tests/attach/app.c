// Calls of CUDA's and a lock that two threads want, until a signal ends it. First it prints its descriptors and the names of its environment.
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static pthread_mutex_t wanted = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *arg)
{
    pthread_setname_np(pthread_self(), arg ? "worker" : "main one");
    for (;;) {
        pthread_mutex_lock(&wanted);
        cuLaunchKernel((void *)0x100, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
        usleep(1000);
        pthread_mutex_unlock(&wanted);
        usleep(100);
    }
}

int main(void)
{
    alarm(120);
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            printf("%s ", e->d_name);
    closedir(d);
    for (char **e = environ; *e; e++)
        if (strstr(*e, "doorbell") || strstr(*e, "DOORBELL"))
            printf("%s ", *e);
    puts("");
    fflush(stdout);
    pthread_t t;
    pthread_create(&t, 0, work, "");
    work(0);
}
