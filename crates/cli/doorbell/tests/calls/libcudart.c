/* Replaces libcudart: reaches the driver in the same way, through dlopen, dlsym and cuGetProcAddress. Also linked into a
   program, with HIDDEN, which hides all its names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef HIDDEN
#define OPEN __attribute__((visibility("hidden")))
#else
#define OPEN
#endif

typedef uint64_t u64;
typedef uint32_t u32;
typedef struct { u32 x, y, z; } dim3;

static int (*launch)(void *, u32, u32, u32, u32, u32, u32, u32, void *, void **, void **);
static int (*copy)(u64, const void *, u64, void *);
static int (*wait_for)(void *);
static int (*batch)(void *const *, const void *const *, const u64 *, u64, void *, u64 *, u64, void *);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) abort();
    int (*first)(const char *, void **, int, u64, int *) = dlsym(driver, "cuGetProcAddress_v2");
    int (*get)(const char *, void **, int, u64, int *);
    int status;
    if (first("cuGetProcAddress", (void **)&get, 12000, 0, &status)) abort();
    if (get("cuLaunchKernel", (void **)&launch, 12000, 0, &status)) abort();
    if (get("cuMemcpyHtoDAsync", (void **)&copy, 12000, 0, &status)) abort();
    if (get("cuStreamSynchronize", (void **)&wait_for, 12000, 0, &status)) abort();
    if (get("cuMemcpyBatchAsync", (void **)&batch, 13000, 0, &status)) abort();
    int (*table)(void **, const char *);
    void *none;
    if (get("cuGetExportTable", (void **)&table, 3000, 0, &status) || table(&none, "\1a table of it")) abort();
    if (!get("cuNoSuchThing", &none, 12000, 0, &status) || none || status != 1) abort();
}

OPEN int cudaRuntimeGetVersion(int *v) { return *v = 13000, 0; }
OPEN int cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, u64 shared, void *stream) {
    pthread_once(&once, start);
    return launch((void *)f, g.x, g.y, g.z, b.x, b.y, b.z, (u32)shared, stream, args, 0);
}
OPEN int __cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, u64 shared, void *stream) {
    return cudaLaunchKernel(f, g, b, args, shared, stream);
}
OPEN int cudaMemcpyAsync(void *to, const void *from, u64 n, int kind, void *stream) {
    pthread_once(&once, start);
    return copy((u64)to, from, n, stream);
}
/* As CUDA 13 has it. CUDA 12.8 has one with the same name and a pointer more. */
OPEN int cudaMemcpyBatchAsync(void *const *to, const void *const *from, const u64 *bytes, u64 n, void *attributes, u64 *of,
                              u64 of_n, void *stream) {
    pthread_once(&once, start);
    return batch(to, from, bytes, n, attributes, of, of_n, stream);
}
OPEN int cudaStreamSynchronize(void *stream) {
    pthread_once(&once, start);
    return wait_for(stream);
}
OPEN int cudaDeviceSynchronize(void) { return 0; }
