// Kernels before and after a checkpoint, from two threads with a stream each. Argument "self": the process checkpoints
// itself; otherwise another one does (drive.py), and a byte on standard input says that it is done.
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

__global__ void tick(int *p) { atomicAdd(p, 1); }

static int *counter;

static void *work(void *) {
    cudaStream_t s;
    cudaStreamCreate(&s);
    for (int i = 0; i < 500; i++) tick<<<1, 1, 0, s>>>(counter);
    cudaStreamSynchronize(s);
    // (It stays: the restore makes its channel again.)
    return NULL;
}

static void half(const char *which) {
    pthread_t threads[2];
    for (pthread_t &t : threads) pthread_create(&t, NULL, work, NULL);
    for (pthread_t &t : threads) pthread_join(t, NULL);
    for (int i = 0; i < 1000; i++) tick<<<1, 1>>>(counter);
    printf("%s half: %s\n", which, cudaGetErrorString(cudaDeviceSynchronize()));
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int sum;
    cudaMalloc(&counter, 4);
    cudaMemset(counter, 0, 4);
    half("first");
    char c;
    if (argc > 1 && !strcmp(argv[1], "self")) {
        void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
        static char arguments[64];
        for (const char *name : {"cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore", "cuCheckpointProcessUnlock"}) {
            int (*call)(int, void *) = (int (*)(int, void *))dlsym(cuda, name);
            printf("%s: %d\n", name, call ? call(getpid(), arguments) : -1);
        }
    } else if (read(0, &c, 1) != 1) {
        return 3;
    }
    half("second");
    cudaError_t e = cudaMemcpy(&sum, counter, 4, cudaMemcpyDeviceToHost);
    printf("count %d of 4000: %s\n", sum, cudaGetErrorString(e));
    return e || sum != 4000;
}
