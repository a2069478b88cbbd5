/* cuMemcpyBatchAsync and cuMemcpy3DBatchAsync in the forms of CUDA 12.8 and of CUDA 13, and its own count of copies and bytes.
   needs: gpu
   build: gcc -w -O1 {0}.c -o {0} -ldl
   record: --gpu-times
   last: --gpu-times
   expect: calls('cuMemcpyBatchAsync') == (20, 1280, 20 * sum(4 + i * 2048 + i % 3 for i in range(64)))
   expect: calls('cuMemcpy3DBatchAsync') == (20, 40, 20 * (256 * 100 + 64 * 8 * 3)) */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
/* Of cuda.h: CUmemcpyAttributes, CUmemcpy3DOperand of a pointer, CUDA_MEMCPY3D_BATCH_OP. */
typedef struct { int order, hints[4]; unsigned flags; } attributes;
typedef struct { u64 type, at, row, layer, hint; } operand;
typedef struct { operand from, to; u64 x, y, z; int order; unsigned flags; } operation;

enum { PIECES = 64, TIMES = 10, ROOM = 16 << 20, POINTER = 1, IN_STREAM_ORDER = 1 };
static void *lib;
static int (*get)(const char *, void **, int, u64, int *);

static void *need(const char *name) {
    void *f = dlsym(lib, name);
    if (!f) printf("no %s\n", name), exit(1);
    return f;
}
static void ok(const char *what, int r) {
    if (r) printf("%s: %d\n", what, r), exit(1);
}
/* As the runtime asks for it; by its symbol where there is no cuGetProcAddress. */
static void *form(const char *name, int version, const char *symbol) {
    void *f = 0;
    int status;
    if (!get) return dlsym(lib, symbol);
    return get(name, &f, version, 0, &status) ? 0 : f;
}
static void counted(const char *what, int version, u64 batches, u64 copies, u64 bytes) {
    printf("%s of CUDA %d: %lu batches, %lu copies, %lu bytes\n", what, version, batches, copies, bytes);
}

int main(void) {
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) return puts("no libcuda"), 1;
    get = dlsym(lib, "cuGetProcAddress_v2");
    int device;
    void *context, *stream;
    unsigned char *h, *back;
    u64 d;
    ok("cuInit", ((int (*)(unsigned))need("cuInit"))(0));
    ok("cuDeviceGet", ((int (*)(int *, int))need("cuDeviceGet"))(&device, 0));
    ok("retain", ((int (*)(void **, int))need("cuDevicePrimaryCtxRetain"))(&context, device));
    ok("current", ((int (*)(void *))need("cuCtxSetCurrent"))(context));
    int (*host)(void *, size_t, unsigned) = need("cuMemHostAlloc"), (*wait)(void *) = need("cuStreamSynchronize");
    ok("host", host(&h, ROOM, 0));
    ok("host", host(&back, ROOM, 0));
    ok("device", ((int (*)(u64 *, size_t))need("cuMemAlloc_v2"))(&d, ROOM));
    ok("stream", ((int (*)(void **, unsigned))need("cuStreamCreate"))(&stream, 1));
    int (*to_host)(void *, u64, size_t) = need("cuMemcpyDtoH_v2");

    u64 to[PIECES], from[PIECES], n[PIECES], at = 0, bytes = 0, first = 0, failed = 0, wrong = 0;
    for (u64 i = 0; i < PIECES; i++) {
        n[i] = 4 + i * 2048 + i % 3, to[i] = d + at, from[i] = (u64)h + at, bytes += n[i];
        at += (n[i] + 255) / 256 * 256;
    }
    operation o[] = {{{POINTER, (u64)h, 1024, 100}, {POINTER, d, 512, 100}, 256, 100, 1, IN_STREAM_ORDER},
                     {{POINTER, (u64)h + (8 << 20), 64, 8}, {POINTER, d + (8 << 20), 128, 16}, 64, 8, 3, IN_STREAM_ORDER}};
    u64 box_bytes = 256 * 100 + 64 * 8 * 3;
    attributes a = {IN_STREAM_ORDER};
    for (int version = 12080; version <= 13000; version += 920) {
        int is_old = version < 13000;
        for (u64 i = 0; i < ROOM; i++) h[i] = (i * 2654435761u + version) >> 24;
        int (*f)() = form("cuMemcpyBatchAsync", version, is_old ? "cuMemcpyBatchAsync" : "cuMemcpyBatchAsync_v2");
        for (int k = 0; f && k < TIMES; k++) {
            if (is_old) ok("batch", ((int (*)(u64 *, u64 *, u64 *, size_t, attributes *, u64 *, size_t, u64 *, void *))f)(to, from, n, PIECES, &a, &first, 1, &failed, stream));
            else ok("batch", ((int (*)(u64 *, u64 *, u64 *, size_t, attributes *, u64 *, size_t, void *))f)(to, from, n, PIECES, &a, &first, 1, stream));
            ok("wait", wait(stream));
        }
        if (!f) printf("cuMemcpyBatchAsync of CUDA %d is not there\n", version);
        else {
            ok("back", to_host(back, d, ROOM));
            for (int i = 0; i < PIECES; i++) wrong += memcmp(back + (to[i] - d), (void *)from[i], n[i]) != 0;
            counted("cuMemcpyBatchAsync", version, TIMES, TIMES * PIECES, TIMES * bytes);
        }
        f = form("cuMemcpy3DBatchAsync", version, is_old ? "cuMemcpy3DBatchAsync" : "cuMemcpy3DBatchAsync_v2");
        for (int k = 0; f && k < TIMES; k++) {
            if (is_old) ok("boxes", ((int (*)(size_t, operation *, u64 *, u64, void *))f)(2, o, &failed, 0, stream));
            else ok("boxes", ((int (*)(size_t, operation *, u64, void *))f)(2, o, 0, stream));
            ok("wait", wait(stream));
        }
        if (!f) printf("cuMemcpy3DBatchAsync of CUDA %d is not there\n", version);
        else {
            ok("back", to_host(back, d, ROOM));
            for (int y = 0; y < 100; y++) wrong += memcmp(back + y * 512, h + y * 1024, 256) != 0;
            for (int y = 0; y < 24; y++)
                wrong += memcmp(back + (8 << 20) + y / 8 * 2048 + y % 8 * 128, h + (8 << 20) + y * 64, 64) != 0;
            counted("cuMemcpy3DBatchAsync", version, TIMES, TIMES * 2, TIMES * box_bytes);
        }
    }
    printf("wrong %lu\n", wrong);
    return wrong != 0;
}
