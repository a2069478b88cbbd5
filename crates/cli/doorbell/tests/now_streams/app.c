// Streams that wait for one another, for a word, and for a thread that waits for them. Prints a line, hangs, and is killed.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t u64;
int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuStreamCreate(void **, unsigned), cuStreamSynchronize(void *), cuMemHostAlloc(void **, size_t, unsigned);
int cuStreamWaitValue32_v2(void *, u64, unsigned, unsigned), cuStreamWriteValue32_v2(void *, u64, unsigned, unsigned);
int cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuStreamWaitEvent(void *, void *, unsigned);
int cuEventQuery(void *), cuLaunchHostFunc(void *, void (*)(void *), void *);

static void *context, *a, *b, *event;
static unsigned *words;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void ok(int result) {
    if (result) fprintf(stderr, "error %d\n", result), exit(1);
}

static u64 word(int n) { return (u64)(uintptr_t)(words + n); }

static void needs_the_lock(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static void *waits(void *what) {
    ok(cuCtxSetCurrent(context));
    if (!strcmp(what, "host")) pthread_mutex_lock(&lock), ok(cuLaunchHostFunc(a, needs_the_lock, 0));
    while (!strcmp(what, "poll")) cuEventQuery(event), usleep(1000);
    ok(cuStreamSynchronize(a));
    return 0;
}

int main(int count, char **arguments) {
    (void)count;
    char *what = arguments[1];
    int device;
    ok(cuInit(0)), ok(cuDeviceGet(&device, 0)), ok(cuDevicePrimaryCtxRetain(&context, device));
    ok(cuCtxSetCurrent(context));
    ok(cuStreamCreate(&a, 1)), ok(cuStreamCreate(&b, 1)), ok(cuEventCreate(&event, 2));
    ok(cuMemHostAlloc((void **)&words, 4096, 2));
    if (!strcmp(what, "circle")) {
        ok(cuStreamWaitValue32_v2(a, word(0), 1, 0)), ok(cuStreamWriteValue32_v2(a, word(1), 1, 0));
        ok(cuStreamWaitValue32_v2(b, word(1), 1, 0)), ok(cuStreamWriteValue32_v2(b, word(0), 1, 0));
    }
    if (!strcmp(what, "poll")) {
        words[0] = 4;
        ok(cuStreamWaitValue32_v2(b, word(0), 5, 0)), ok(cuEventRecord(event, b));
    }
    pthread_t thread;
    pthread_create(&thread, 0, waits, what);
    usleep(300000);
    printf("ready %p %p\n", a, b), fflush(stdout);
    pthread_join(thread, 0);
    return 0;
}
