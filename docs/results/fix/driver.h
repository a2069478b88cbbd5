/* CUDA's driver as the programs of this folder use it: found by dlsym, so that they need no header of CUDA's and get any entry that doorbell has. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void *lib, *context;

#define CUDA(name, ...)                                                                \
    do {                                                                               \
        int result = ((int (*)())dlsym(lib, #name))(__VA_ARGS__);                      \
        if (result) fprintf(stderr, #name ": %d (line %d)\n", result, __LINE__), exit(1); \
    } while (0)

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* A kernel of this PTX, in the primary context of the first GPU. */
static void *begin(const char *code, const char *kernel)
{
    int device;
    void *module, *function;
    if (!(lib = dlopen("libcuda.so.1", RTLD_NOW))) fprintf(stderr, "no libcuda\n"), exit(1);
    CUDA(cuInit, 0);
    CUDA(cuDeviceGet, &device, 0);
    CUDA(cuDevicePrimaryCtxRetain, &context, device);
    CUDA(cuCtxSetCurrent, context);
    CUDA(cuModuleLoadData, &module, code);
    CUDA(cuModuleGetFunction, &function, module, kernel);
    return function;
}
