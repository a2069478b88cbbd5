// Locks and calls of CUDA's in three phases: before a pause, in it, and after it.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuProfilerStart(void);
int cuProfilerStop(void);

pthread_mutex_t each = PTHREAD_MUTEX_INITIALIZER, across = PTHREAD_MUTEX_INITIALIZER;

static int (*recording)(int);
static int profiler;

static void pause_it(int on)
{
    if (profiler)
        on ? cuProfilerStop() : cuProfilerStart();
    else if (recording)
        recording(!on);
}

static void work(int times)
{
    for (int i = 0; i < times; i++) {
        pthread_mutex_lock(&each);
        pthread_mutex_unlock(&each);
        cuLaunchKernel((void *)0x100, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    }
}

int main(int count, char **words)
{
    recording = dlsym(RTLD_DEFAULT, "doorbell_agent_recording");
    profiler = count > 1 && !strcmp(words[1], "profiler");
    int begins_paused = count > 2;
    if (begins_paused) {
        work(3);
        pause_it(0);
    }
    pthread_mutex_lock(&across);
    work(5);
    pause_it(1);
    pause_it(1);
    work(7);
    pthread_mutex_unlock(&across);
    pause_it(0);
    work(11);
    pthread_mutex_lock(&across);
    pthread_mutex_unlock(&across);
    printf("%d\n", recording ? recording(-1) : -1);
}
