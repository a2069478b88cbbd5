/* The program of timeline.png: one thread serves, another loads a module.
 *
 *   cc -O2 -pthread docs/pictures/timeline.c -o timeline -Iexamples/c -Icrates/gpu/libdoorbell/include -ldl
 *   doorbell record --locks --gpu-times -o timeline.doorbell ./timeline
 *
 * The server does the same each 250 us for 50 ms: a copy to the GPU, two kernels, a copy back. The module is compiled from PTX
 * that CUDA has not compiled before. Exit status 0; 1 for an error of CUDA's; 77 without CUDA. */
#define _GNU_SOURCE
#include "driver_api.h"
#include <pthread.h>

enum { BYTES = 256 * 1024, PERIOD = 250000, ROUNDS = 200, KERNELS = 12 };
static char ptx[1 << 16];

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
    if (!load_cuda())
        return fprintf(stderr, "no libcuda\n"), 77;
    void *module, *host, *stream, *kernels[2];
    address_t memory;
    uint64_t ns[2] = {60000, 25000};
    pthread_t other;
    open_context();
    write_ptx(2, 0);
    cuda(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    kernels[0] = kernel_of(module, "attention0");
    kernels[1] = kernel_of(module, "softmax1");
    cuda(cuMemAlloc(&memory, BYTES), "cuMemAlloc");
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
        cuda(cuMemcpyHtoDAsync(memory, host, BYTES, stream), "cuMemcpyHtoDAsync");
        for (int n = 0; n < 2; n++) {
            void *parameters[] = {&ns[n]};
            cuda(cuLaunchKernel(kernels[n], 132, 1, 1, 128, 1, 1, 0, stream, parameters, NULL), "cuLaunchKernel");
        }
        cuda(cuMemcpyDtoHAsync(host, memory, BYTES, stream), "cuMemcpyDtoHAsync");
        cuda(cuStreamSynchronize(stream), "cuStreamSynchronize");
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
    pthread_join(other, NULL);
    return 0;
}
