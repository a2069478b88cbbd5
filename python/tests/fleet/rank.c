/* One rank of a job, for doorbell.fleet's tests: libcuda in software, a mutex of two threads, and a word in a shared file that
 * all ranks count up and wait for. Each step launches a graph, copies, takes the mutex, and waits for all ranks.
 *
 * rank STEPS HELD_US KERNELS SLEEP_US [FILE RANKS] */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 256 << 10, COPIES = 4 };

typedef int (*call)();

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t taken, done;
static int steps, held_us;

static call of(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fprintf(stderr, "no %s\n", name), exit(1);
    return (call)found;
}

static void check(int status, const char *what)
{
    if (status)
        fprintf(stderr, "%s: CUDA error %d\n", what, status), exit(1);
}
#define CUDA(name, ...) check(of(cuda, #name)(__VA_ARGS__), #name)

/* The other thread of the process has the lock for so long in each step. */
static void *loader(void *unused)
{
    for (int step = 0; step < steps; step++) {
        pthread_mutex_lock(&queue_lock);
        pthread_barrier_wait(&taken);
        usleep(held_us);
        pthread_mutex_unlock(&queue_lock);
        pthread_barrier_wait(&done);
    }
    return unused;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return fprintf(stderr, "rank STEPS HELD_US KERNELS SLEEP_US [FILE RANKS]\n"), 1;
    steps = atoi(argv[1]), held_us = atoi(argv[2]);
    int kernels = atoi(argv[3]), sleep_us = atoi(argv[4]), ranks = argc > 6 ? atoi(argv[6]) : 1;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context, *stream, *module, *add, *gate, *graph, *exec, *host;
    if (!cuda)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    unsigned long long device, words, at;
    CUDA(cuInit, 0);
    CUDA(cuDevicePrimaryCtxRetain, &context, 0);
    CUDA(cuCtxSetCurrent, context);
    CUDA(cuStreamCreate, &stream, 0);
    CUDA(cuModuleLoadData, &module, "");
    CUDA(cuModuleGetFunction, &add, module, "add1");
    CUDA(cuModuleGetFunction, &gate, module, "gate");
    CUDA(cuMemAlloc_v2, &device, (size_t)BYTES);
    CUDA(cuMemAlloc_v2, &words, (size_t)4096);
    CUDA(cuMemHostAlloc, &host, (size_t)BYTES, 0);
    CUDA(cuMemHostGetDevicePointer_v2, &at, host, 0);
    void *add_arguments[] = {&words};
    CUDA(cuStreamBeginCapture_v2, stream, 0);
    for (int n = 0; n < kernels; n++)
        CUDA(cuLaunchKernel, add, 1, 1, 1, 1, 1, 1, 0, stream, add_arguments, NULL);
    CUDA(cuStreamEndCapture, stream, &graph);
    CUDA(cuGraphInstantiateWithFlags, &exec, graph, 0ull);

    int file = argc > 5 ? open(argv[5], O_RDWR) : -1;
    uint32_t *arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    if (arrived == MAP_FAILED)
        return perror("mmap"), 1;
    static uint32_t data, flag;
    pthread_barrier_init(&taken, NULL, 2), pthread_barrier_init(&done, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, loader, NULL);
    for (int step = 0; step < steps; step++) {
        pthread_barrier_wait(&taken);
        /* (On an idle stream this thread rings the doorbell itself, so that kernels and copies have times.) */
        CUDA(cuGraphLaunch, exec, stream);
        CUDA(cuStreamSynchronize, stream);
        for (int n = 0; n < COPIES; n++)
            CUDA(cuMemcpyHtoDAsync_v2, device, host, (size_t)BYTES, stream);
        pthread_mutex_lock(&queue_lock);
        pthread_mutex_unlock(&queue_lock);
        if (sleep_us)
            usleep(sleep_us);
        CUDA(cuStreamSynchronize, stream);
        /* All ranks, as a collective would. */
        __atomic_fetch_add(arrived, 1, __ATOMIC_SEQ_CST);
        uint64_t word = (uint64_t)arrived, to_data = (uint64_t)&data, to_flag = (uint64_t)&flag;
        uint32_t all = (uint32_t)(ranks * (step + 1));
        void *gate_arguments[] = {&word, &to_data, &to_flag, &all};
        CUDA(cuLaunchKernel, gate, 1, 1, 1, 1, 1, 1, 0, stream, gate_arguments, NULL);
        CUDA(cuCtxSynchronize);
        pthread_barrier_wait(&done);
    }
    pthread_join(thread, NULL);
    return 0;
}
