/* The program of timeline.png: one thread serves, another loads a module.
 *
 *   cc -O2 -pthread docs/pictures/timeline.c -o timeline -ldl
 *   doorbell record --locks --gpu-times -o timeline.doorbell ./timeline
 *
 * The server does the same each 250 us for 50 ms: a copy to the GPU, two kernels, a copy back. The module is compiled from PTX
 * that CUDA has not compiled before. Exit status 0; 1 for an error of CUDA's; 77 without CUDA. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long address_t;
static int (*cuInit)(unsigned), (*cuDeviceGet)(int *, int), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc_v2)(address_t *, size_t), (*cuMemHostAlloc)(void **, size_t, unsigned), (*cuStreamCreate)(void **, unsigned);
static int (*cuStreamSynchronize)(void *), (*cuMemcpyHtoDAsync_v2)(address_t, const void *, size_t, void *);
static int (*cuMemcpyDtoHAsync_v2)(void *, address_t, size_t, void *), (*cuModuleLoadData)(void **, const void *);
static int (*cuModuleGetFunction)(void **, void *, const char *);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

enum { BYTES = 256 * 1024, PERIOD = 250000, ROUNDS = 200, KERNELS = 12 };
static void *context;
static char ptx[1 << 16];

static void cuda(int status, const char *what)
{
    if (status != 0) {
        fprintf(stderr, "%s: CUDA error %d\n", what, status);
        exit(1);
    }
}

/* `count` kernels that run for as many ns as their parameter says. `salt` makes the text a new one. */
static void write_ptx(int count, unsigned salt)
{
    int at = sprintf(ptx, ".version 6.0\n.target sm_70\n.address_size 64\n");
    for (int n = 0; n < count; n++)
        at += sprintf(ptx + at,
                      ".visible .entry %s%d(.param .u64 ns) {\n.reg .pred %%p;\n.reg .b32 %%x;\n.reg .b64 %%ns, %%start, %%now;\n"
                      "mov.u32 %%x, %u;\nld.param.u64 %%ns, [ns];\nmov.u64 %%start, %%globaltimer;\nAGAIN:\nmov.u64 %%now, %%globaltimer;\n"
                      "sub.u64 %%now, %%now, %%start;\nsetp.lt.u64 %%p, %%now, %%ns;\n@%%p bra AGAIN;\nret;\n}\n",
                      count == 2 ? n ? "softmax" : "attention" : "layer", n, salt);
}

static void *loader(void *unused)
{
    void *module;
    struct timespec at = {.tv_nsec = 20000000};
    (void)unused;
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    nanosleep(&at, NULL);
    cuda(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    return NULL;
}

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return fprintf(stderr, "no libcuda\n"), 77;
#define LOAD(name) *(void **)&name = dlsym(library, #name)
    LOAD(cuInit), LOAD(cuDeviceGet), LOAD(cuDevicePrimaryCtxRetain), LOAD(cuCtxSetCurrent), LOAD(cuMemAlloc_v2), LOAD(cuMemHostAlloc), LOAD(cuStreamCreate);
    LOAD(cuStreamSynchronize), LOAD(cuMemcpyHtoDAsync_v2), LOAD(cuMemcpyDtoHAsync_v2), LOAD(cuModuleLoadData), LOAD(cuModuleGetFunction), LOAD(cuLaunchKernel);
    int device;
    void *module, *host, *stream, *kernels[2];
    address_t memory;
    uint64_t ns[2] = {60000, 25000};
    pthread_t other;
    cuda(cuInit(0), "cuInit");
    cuda(cuDeviceGet(&device, 0), "cuDeviceGet");
    cuda(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    write_ptx(2, 0);
    cuda(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    cuda(cuModuleGetFunction(&kernels[0], module, "attention0"), "cuModuleGetFunction");
    cuda(cuModuleGetFunction(&kernels[1], module, "softmax1"), "cuModuleGetFunction");
    cuda(cuMemAlloc_v2(&memory, BYTES), "cuMemAlloc");
    cuda(cuMemHostAlloc(&host, BYTES, 0), "cuMemHostAlloc");
    cuda(cuStreamCreate(&stream, 1), "cuStreamCreate");
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    write_ptx(KERNELS, (unsigned)at.tv_nsec);
    pthread_setname_np(pthread_self(), "server");
    pthread_create(&other, NULL, loader, NULL);
    pthread_setname_np(other, "loader");
    for (int round = 0; round < ROUNDS; round++) {
        at.tv_nsec += PERIOD;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        cuda(cuMemcpyHtoDAsync_v2(memory, host, BYTES, stream), "cuMemcpyHtoDAsync");
        for (int n = 0; n < 2; n++) {
            void *parameters[] = {&ns[n]};
            cuda(cuLaunchKernel(kernels[n], 132, 1, 1, 128, 1, 1, 0, stream, parameters, NULL), "cuLaunchKernel");
        }
        cuda(cuMemcpyDtoHAsync_v2(host, memory, BYTES, stream), "cuMemcpyDtoHAsync");
        cuda(cuStreamSynchronize(stream), "cuStreamSynchronize");
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
    pthread_join(other, NULL);
    return 0;
}
