/* What `run --fix` answers, with checks of all bytes and results. Prints what a program can see of its memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
static void *lib, *context;
#define CALL(name, ...) ((int (*)())dlsym(lib, #name))(__VA_ARGS__)
static void ok(const char *what, int r) {
    if (r) printf("%s: %d\n", what, r), exit(1);
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
static void fill(unsigned char *at, size_t n, unsigned salt) {
    for (size_t i = 0; i < n; i++) at[i] = (i * 2654435761u + salt) >> 13;
}
static size_t wrong(const unsigned char *at, size_t n, unsigned salt) {
    size_t bad = 0;
    for (size_t i = 0; i < n; i++) bad += at[i] != (unsigned char)((i * 2654435761u + salt) >> 13);
    return bad;
}
/* The first thread with a context is main's; others take it. */
static void begin(void) {
    ok("cuCtxSetCurrent", CALL(cuCtxSetCurrent, context));
}
/* What can be asked of pinned memory: at its first byte and in it. */
static void asked(char *p, size_t n) {
    for (int i = 0; i < 2; i++) {
        char *at = p + i * (n - 1);
        u64 base = 0, handle = 0, at_context = 0, range = 0;
        size_t length = 0;
        unsigned flags = 99, type = 0;
        int asked[] = {2, 1, 12};
        void *to[] = {&type, &at_context, &range};
        printf(" flags %d", CALL(cuMemHostGetFlags, &flags, at));
        printf(" %u range %d", flags, CALL(cuMemGetAddressRange_v2, &base, &length, at));
        printf(" %d %zu handle %d", base == (u64)p, length, CALL(cuMemRetainAllocationHandle, &handle, at));
        printf(" attributes %d", CALL(cuPointerGetAttributes, 3, asked, to, at));
        printf(" %u %d %zu", type, at_context == (u64)context, (size_t)range);
        at_context = 0;
        printf(" context %d", CALL(cuPointerGetAttribute, &at_context, 1, at));
        printf(" %d", at_context == (u64)context);
    }
}
static void pins(void) {
    static const size_t sizes[] = {0, 4096, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 4 << 20, (16 << 20) + 5, 33 << 20};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned flags = 0; flags < 5; flags += flags == 0 ? 3 : 1) {
            void *p = 0;
            size_t n = sizes[i];
            int r = CALL(cuMemHostAlloc, &p, n, flags);
            if (n == 0) { printf("pins %zu %u: %d %d\n", n, flags, r, !!p); continue; }
            ok("cuMemHostAlloc", r);
            u64 device = 0;
            unsigned type = 0;
            ok("device pointer", CALL(cuMemHostGetDevicePointer_v2, &device, p, 0));
            ok("type", CALL(cuPointerGetAttribute, &type, 2, p));
            fill(p, n, i);
            printf("pins %zu %u: same %d type %u wrong %zu", n, flags, device == (u64)p, type, wrong(p, n, i));
            asked(p, n);
            int inner = CALL(cuMemFreeHost, (char *)p + 64), first = CALL(cuMemFreeHost, p), second = CALL(cuMemFreeHost, p);
            printf(" frees %d %d %d\n", inner, first, second);
        }
    void *p = 0;
    printf("pins: no place %d, flags %d, huge %d, nothing %d\n", CALL(cuMemHostAlloc, (void *)0, (size_t)4 << 20, 0), CALL(cuMemHostAlloc, &p, (size_t)4 << 20, 64), CALL(cuMemHostAlloc, &p, (size_t)1 << 50, 0), CALL(cuMemFreeHost, (void *)0));
    ok("no context", CALL(cuCtxSetCurrent, (void *)0));
    printf("pins: no context %d\n", CALL(cuMemHostAlloc, &p, (size_t)4 << 20, 0));
    begin();
}
/* A reset ends the memory of its context. */
static void contexts(void) {
    void *p[3] = {0};
    ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &p[0], (size_t)4 << 20, 0));
    ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &p[1], (size_t)8 << 20, 0));
    for (int i = 0; i < 2; i++) {
        ok("reset", CALL(cuDevicePrimaryCtxReset_v2, 0));
        if (i) printf("contexts: freed while there is none %d\n", CALL(cuMemFreeHost, p[1]));
        ok("cuDevicePrimaryCtxRetain", CALL(cuDevicePrimaryCtxRetain, &context, 0));
        begin();
        printf("contexts: freed after a reset %d\n", CALL(cuMemFreeHost, p[0]));
        ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &p[2], (size_t)16 << 20, 0));
        fill(p[2], (size_t)16 << 20, 1);
        ok("cuMemFreeHost", CALL(cuMemFreeHost, p[2]));
        ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &p[1], (size_t)8 << 20, 0));
    }
}
static size_t memory_left(void) {
    size_t left, all;
    ok("cuMemGetInfo", CALL(cuMemGetInfo_v2, &left, &all));
    return left >> 20;
}
static volatile int *word, is_set;
static void *sets(void *unused) {
    usleep(300000);
    is_set = *word = 1;
    return unused;
}
/* Memory of the GPU: what can be seen of it, errors, its free, and its end with the context. */
static void memory(void) {
    static const size_t sizes[] = {0, 4096, (256 << 20) - 1, 256 << 20, (256 << 20) + 5, 600 << 20};
    enum { PAGE = 4096 };
    unsigned char page[PAGE];
    u64 p = 0, other = 0, ids[2] = {0};
    void *stream, *graph;
    pthread_t t;
    ok("cuStreamCreate", CALL(cuStreamCreate, &stream, 1));
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i], bad = 0;
        int r = CALL(cuMemAlloc_v2, &p, n);
        if (n == 0) { printf("memory 0: %d\n", r); continue; }
        ok("cuMemAlloc", r);
        ok("cuMemAlloc", CALL(cuMemAlloc_v2, &other, n));
        ok("number", CALL(cuPointerGetAttribute, &ids[0], 7, p + n - 1));
        ok("number", CALL(cuPointerGetAttribute, &ids[1], 7, other));
        for (int end = 0; end < 2; end++) {
            u64 at = end ? p + n - PAGE : p;
            fill(page, PAGE, i + end);
            ok("to the GPU", CALL(cuMemcpyHtoD_v2, at, page, (size_t)PAGE));
            memset(page, 0, PAGE);
            ok("to the host", CALL(cuMemcpyDtoH_v2, page, at, (size_t)PAGE));
            bad += wrong(page, PAGE, i + end);
        }
        printf("memory %zu: aligned %d wrong %zu, numbers %d", n, p % (n > PAGE ? 2 << 20 : 512) == 0, bad, ids[0] && ids[1] && ids[0] != ids[1]);
        asked((char *)p, n);
        int inner = CALL(cuMemFree_v2, p + 512), pinned = CALL(cuMemFreeHost, (void *)p), first = CALL(cuMemFree_v2, p), second = CALL(cuMemFree_v2, p);
        printf(" frees %d %d %d %d\n", inner, pinned, first, second);
        ok("cuMemFree", CALL(cuMemFree_v2, other));
    }
    printf("memory: no place %d, huge %d, nothing %d\n", CALL(cuMemAlloc_v2, (void *)0, (size_t)256 << 20), CALL(cuMemAlloc_v2, &p, (size_t)1 << 50), CALL(cuMemFree_v2, 0ull));
    ok("no context", CALL(cuCtxSetCurrent, (void *)0));
    printf("memory: no context %d\n", CALL(cuMemAlloc_v2, &p, (size_t)256 << 20));
    begin();
    /* A free waits for all work of the context, and needs no current context. */
    ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &word, (size_t)4096, 0));
    for (int without = 0; without < 2; without++) {
        ok("cuMemAlloc", CALL(cuMemAlloc_v2, &p, (size_t)256 << 20));
        is_set = *word = 0;
        ok("cuStreamWaitValue32", CALL(cuStreamWaitValue32_v2, stream, (u64)word, 1u, 0u));
        pthread_create(&t, 0, sets, 0);
        if (without) ok("no context", CALL(cuCtxSetCurrent, (void *)0));
        int r = CALL(cuMemFree_v2, p);
        printf("memory: free %d, waited %d\n", r, is_set);
        pthread_join(t, 0);
        begin();
        ok("cuStreamSynchronize", CALL(cuStreamSynchronize, stream));
    }
    /* While a stream is captured, in the modes global and relaxed. */
    for (int relaxed = 0; relaxed < 2; relaxed++) {
        int mode = 2;
        ok("cuMemAlloc", CALL(cuMemAlloc_v2, &p, (size_t)256 << 20));
        ok("cuStreamBeginCapture", CALL(cuStreamBeginCapture_v2, stream, 0));
        if (relaxed) ok("mode", CALL(cuThreadExchangeStreamCaptureMode, &mode));
        int r = CALL(cuMemAlloc_v2, &other, (size_t)256 << 20), first = CALL(cuMemFree_v2, p);
        if (relaxed) ok("mode", CALL(cuThreadExchangeStreamCaptureMode, &mode));
        int end = CALL(cuStreamEndCapture, stream, &graph);
        printf("memory: captured %d, free %d, end %d, again %d\n", r, first, end, CALL(cuMemFree_v2, p));
        if (!r) ok("cuMemFree", CALL(cuMemFree_v2, other));
    }
    /* A reset ends it. */
    size_t before = memory_left();
    ok("cuMemAlloc", CALL(cuMemAlloc_v2, &p, (size_t)1 << 30));
    size_t between = memory_left();
    ok("reset", CALL(cuDevicePrimaryCtxReset_v2, 0));
    printf("memory: freed while there is no context %d\n", CALL(cuMemFree_v2, p));
    ok("cuDevicePrimaryCtxRetain", CALL(cuDevicePrimaryCtxRetain, &context, 0));
    begin();
    printf("memory: %d used, %d left after a reset, freed %d\n", between + 1000 < before, memory_left() + 100 > before, CALL(cuMemFree_v2, p));
}
/* Another process is to use it: CUDA refuses that for memory that doorbell made. */
static void shares(const char *how) {
    u64 p, q;
    char handle[64];
    unsigned value = 1;
    ok("cuMemAlloc", CALL(cuMemAlloc_v2, &p, (size_t)256 << 20));
    if (!strcmp(how, "IPC")) printf("shared %d\n", CALL(cuIpcGetMemHandle, handle, p));
    if (!strcmp(how, "synchronous")) printf("shared %d\n", CALL(cuPointerSetAttribute, &value, 6, p));
    if (!strcmp(how, "asked")) {
        int r = CALL(cuPointerGetAttribute, &value, 10, p);
        printf("shared %d %d\n", r, value & 1);
    }
    ok("cuMemAlloc", CALL(cuMemAlloc_v2, &q, (size_t)256 << 20));
    printf("then %d\n", CALL(cuIpcGetMemHandle, handle, q));
    ok("cuMemFree", CALL(cuMemFree_v2, q));
    ok("cuMemFree", CALL(cuMemFree_v2, p));
}
static void copies(void) {
    static const size_t sizes[] = {1, 65536, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, (5 << 20) + 77, 20 << 20};
    void *stream;
    ok("cuStreamCreate", CALL(cuStreamCreate, &stream, 0));
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 4; how++) {
            size_t n = sizes[i], bad = 0;
            unsigned char *from = malloc(n + 1), *to = calloc(1, n + 1);
            u64 gpu = 0;
            ok("cuMemAlloc", CALL(cuMemAlloc_v2, &gpu, n));
            fill(from, n, i + how);
            if (i & 1) ok("to the GPU", how & 1 ? CALL(cuMemcpyAsync, gpu, (u64)from, n, stream) : CALL(cuMemcpy, gpu, (u64)from, n));
            else ok("to the GPU", how & 1 ? CALL(cuMemcpyHtoDAsync_v2, gpu, from, n, stream) : CALL(cuMemcpyHtoD_v2, gpu, from, n));
            /* (An asynchronous copy may be read later.) */
            if (how & 1) ok("cuStreamSynchronize", CALL(cuStreamSynchronize, stream));
            memset(from, 0, n);
            if (i & 1) ok("to the host", how & 2 ? CALL(cuMemcpyAsync, (u64)to, gpu, n, stream) : CALL(cuMemcpy, (u64)to, gpu, n));
            else ok("to the host", how & 2 ? CALL(cuMemcpyDtoHAsync_v2, to, gpu, n, stream) : CALL(cuMemcpyDtoH_v2, to, gpu, n));
            bad = wrong(to, n, i + how) + to[n];
            int beyond = CALL(cuMemcpyHtoD_v2, gpu, from, n + (1 << 22)), nowhere = CALL(cuMemcpyDtoH_v2, to, (u64)64, n);
            printf("copies %zu %d: wrong %zu, beyond %d, nowhere %d\n", n, how, bad, beyond, nowhere);
            ok("cuMemFree", CALL(cuMemFree_v2, gpu));
            free(from), free(to);
        }
    /* While the stream is captured a copy of pageable memory is what it is without the fix. */
    unsigned char *from = malloc(4 << 20);
    u64 gpu = 0;
    void *graph = 0;
    ok("cuMemAlloc", CALL(cuMemAlloc_v2, &gpu, (size_t)4 << 20));
    ok("cuStreamBeginCapture", CALL(cuStreamBeginCapture_v2, stream, 2));
    int inside = CALL(cuMemcpyHtoDAsync_v2, gpu, from, (size_t)4 << 20, stream);
    int end = CALL(cuStreamEndCapture, stream, &graph);
    printf("captured %d, end %d, graph %d\n", inside, end, !!graph);
}
/* A forked child sees its parent's memory, and the parent what the child writes. The process then ends by a signal, with memory left. */
static void forks(int killed) {
    unsigned char *p;
    int ended;
    ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &p, (size_t)4 << 20, 0));
    fill(p, 4 << 20, 3);
    if (!fork()) {
        size_t bad = wrong(p, 4 << 20, 3);
        p[5] ^= 255;
        _exit(bad != 0);
    }
    wait(&ended);
    printf("forks: child %d, wrong afterwards %zu\n", ended, wrong(p, 4 << 20, 3));
    if (killed) fflush(stdout), kill(getpid(), killed);
    ok("cuMemFreeHost", CALL(cuMemFreeHost, p));
}
/* Pages of a cache, scattered on both sides, in a stream's order: what is queued before fills the source, what is queued after copies the destination. */
static void batches(void) {
    enum { PAGE = 4096, PLACES = 2048 };
    static const unsigned counts[] = {1, 15, 16, 100, 1000};
    typedef struct { unsigned order, hints[4], flags; } attributes;
    void *stream, *host, *out, *to[1024], *from[1024];
    u64 gpu, filled;
    size_t bytes[1024], at = 0;
    ok("cuStreamCreate", CALL(cuStreamCreate, &stream, 1));
    ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &host, (size_t)PLACES * PAGE, 0));
    ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &out, (size_t)PLACES * PAGE, 0));
    ok("cuMemAlloc", CALL(cuMemAlloc_v2, &gpu, (size_t)PLACES * PAGE));
    ok("cuMemAlloc", CALL(cuMemAlloc_v2, &filled, (size_t)PLACES * PAGE));
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
        for (unsigned back = 0; back < 2; back++) {
            unsigned n = counts[i], wrongs = 0;
            fill(host, PLACES * PAGE, i * 2 + back);
            for (unsigned k = 0; k < n; k++) {
                size_t there = (k * 7 + 3) % PLACES * (size_t)PAGE, here = (k * 1001 + 5) % PLACES * (size_t)PAGE;
                to[k] = back ? (char *)out + here : (void *)(gpu + here);
                from[k] = back ? (void *)(filled + there) : (char *)host + there;
                bytes[k] = PAGE - k % 3;
            }
            attributes how = {1, {0}, 0};
            memset(out, 0, PLACES * PAGE);
            /* Before: the source of the way back. After: the result of the way there. */
            ok("before", CALL(cuMemcpyHtoDAsync_v2, filled, host, (size_t)PLACES * PAGE, stream));
            ok("batch", CALL(cuMemcpyBatchAsync_v2, to, from, bytes, (size_t)n, &how, &at, (size_t)1, stream));
            if (!back) ok("after", CALL(cuMemcpyDtoHAsync_v2, out, gpu, (size_t)PLACES * PAGE, stream));
            ok("cuStreamSynchronize", CALL(cuStreamSynchronize, stream));
            for (unsigned k = 0; k < n; k++) {
                size_t there = (k * 7 + 3) % PLACES * (size_t)PAGE, here = (k * 1001 + 5) % PLACES * (size_t)PAGE;
                wrongs += !!memcmp((char *)out + here, (char *)host + there, bytes[k]);
            }
            printf("batch of %u %s: wrong %u\n", n, back ? "to the host" : "to the GPU", wrongs);
        }
    /* What waits in a stream holds up no other stream's batches. */
    void *other, *word;
    attributes how = {1, {0}, 0};
    ok("cuStreamCreate", CALL(cuStreamCreate, &other, 1));
    ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &word, (size_t)4096, 0));
    *(volatile unsigned *)word = 0;
    for (unsigned k = 0; k < 1000; k++) to[k] = (void *)(gpu + k * PAGE), from[k] = (char *)host + k * PAGE, bytes[k] = PAGE;
    for (unsigned k = 0; k < 4; k++) {
        void *of = k % 2 ? other : stream;
        if (!k) ok("cuStreamWaitValue32", CALL(cuStreamWaitValue32_v2, stream, (u64)word, 1u, 0u));
        ok("batch", CALL(cuMemcpyBatchAsync_v2, to, from, bytes, (size_t)500, &how, &at, (size_t)1, of));
        ok("batch", CALL(cuMemcpyBatchAsync_v2, from + 500, to, bytes, (size_t)500, &how, &at, (size_t)1, of));
    }
    ok("the other stream", CALL(cuStreamSynchronize, other));
    *(volatile unsigned *)word = 1;
    ok("cuStreamSynchronize", CALL(cuStreamSynchronize, stream));
    printf("two streams: wrong %d\n", !!memcmp(host, (char *)host + 500 * PAGE, 500 * PAGE));
    /* More than there is room for, behind a stream that stands still; the thread that lets it go on is this one. */
    *(volatile unsigned *)word = 0;
    ok("cuStreamWaitValue32", CALL(cuStreamWaitValue32_v2, stream, (u64)word, 1u, 0u));
    for (unsigned k = 0; k < 80; k++)
        ok("batch", CALL(cuMemcpyBatchAsync_v2, to, from, bytes, (size_t)(k % 3 ? 100 : 20), &how, &at, (size_t)1, stream));
    *(volatile unsigned *)word = 1;
    ok("cuStreamSynchronize", CALL(cuStreamSynchronize, stream));
    /* Memory that was made again has a batch, while another one is pending; then one in the other stream. */
    for (unsigned k = 0; k < 100; k++) to[k] = (char *)out + k * PAGE, from[k] = (void *)(filled + k * PAGE);
    ok("batch", CALL(cuMemcpyBatchAsync_v2, to, from, bytes, (size_t)100, &how, &at, (size_t)1, stream));
    ok("cuStreamSynchronize", CALL(cuStreamSynchronize, stream));
    ok("cuMemFree", CALL(cuMemFree_v2, filled));
    ok("cuMemAlloc", CALL(cuMemAlloc_v2, &filled, (size_t)PLACES * PAGE));
    fill(host, PLACES * PAGE, 77);
    ok("cuMemcpyHtoD", CALL(cuMemcpyHtoD_v2, filled, host, (size_t)PLACES * PAGE));
    memset(out, 0, PLACES * PAGE);
    *(volatile unsigned *)word = 0;
    ok("cuStreamWaitValue32", CALL(cuStreamWaitValue32_v2, stream, (u64)word, 1u, 0u));
    for (unsigned k = 0; k < 100; k++) to[k] = (void *)(gpu + k * PAGE), from[k] = (char *)host + k * PAGE;
    ok("batch", CALL(cuMemcpyBatchAsync_v2, to, from, bytes, (size_t)100, &how, &at, (size_t)1, stream));
    for (unsigned k = 0; k < 100; k++) to[k] = (char *)out + k * PAGE, from[k] = (void *)(filled + k * PAGE);
    ok("batch", CALL(cuMemcpyBatchAsync_v2, to, from, bytes, (size_t)100, &how, &at, (size_t)1, stream));
    for (unsigned k = 0; k < 100; k++) to[k] = (char *)out + (200 + k) * PAGE, from[k] = (void *)(filled + (200 + k) * PAGE);
    ok("batch", CALL(cuMemcpyBatchAsync_v2, to, from, bytes, (size_t)100, &how, &at, (size_t)1, other));
    ok("the other stream", CALL(cuStreamSynchronize, other));
    usleep(1500000);
    *(volatile unsigned *)word = 1;
    ok("after", CALL(cuMemcpyDtoHAsync_v2, (char *)out + 400 * PAGE, gpu, (size_t)100 * PAGE, stream));
    ok("cuStreamSynchronize", CALL(cuStreamSynchronize, stream));
    unsigned missing = 0;
    for (unsigned k = 0; k < 100; k++)
        missing += !!memcmp((char *)out + k * PAGE, (char *)host + k * PAGE, PAGE) + !!memcmp((char *)out + (200 + k) * PAGE, (char *)host + (200 + k) * PAGE, PAGE)
                 + !!memcmp((char *)out + (400 + k) * PAGE, (char *)host + k * PAGE, PAGE);
    printf("memory made again: wrong %u\n", missing);
    /* Rows of a plane into another, in each of 20 copies; then the same back in rows of another distance. */
    typedef struct { unsigned type; u64 address; size_t row, layer; unsigned hint[2]; } operand;
    struct { operand from, to; size_t width, height, depth; unsigned order, flags; } planes[20];
    for (unsigned back = 0; back < 2; back++) {
        for (unsigned k = 0; k < 20; k++) {
            operand in_host = {1, (u64)(back ? (char *)out : (char *)host) + k * 40000, 1000, 12, {0}}, in_gpu = {1, gpu + k * 30000, back ? 300 : 0, 0, {0}};
            planes[k].from = back ? in_gpu : in_host;
            planes[k].to = back ? in_host : in_gpu;
            planes[k].width = 300, planes[k].height = 10, planes[k].depth = 3, planes[k].order = 1 + 2 * (k & 1), planes[k].flags = 0;
        }
        if (back) memset(out, 0, 40000 * 20);
        ok("cuMemcpy3DBatchAsync", CALL(cuMemcpy3DBatchAsync_v2, (size_t)20, planes, 0ull, stream));
        ok("cuStreamSynchronize", CALL(cuStreamSynchronize, stream));
    }
    unsigned rows = 0, others = 0;
    for (unsigned k = 0; k < 20; k++)
        for (unsigned y = 0; y < 36; y++) {
            char *there = (char *)out + k * 40000 + y * 1000, *here = (char *)host + k * 40000 + y * 1000;
            int copied = y % 12 < 10;
            rows += copied && !memcmp(there, here, 300);
            for (unsigned x = copied ? 300 : 0; x < 1000; x++) others += !!there[x];
        }
    printf("planes: rows %u, other bytes %u\n", rows, others);
    /* What is passed on, or refused. */
    attributes during = {2, {0}, 0}, unknown = {1, {0}, 64};
    printf("batch: read during the call %d", CALL(cuMemcpyBatchAsync_v2, to, from, bytes, (size_t)100, &during, &at, (size_t)1, stream));
    printf(", flags %d", CALL(cuMemcpyBatchAsync_v2, to, from, bytes, (size_t)100, &unknown, &at, (size_t)1, stream));
    from[50] = malloc(PAGE);
    printf(", pageable %d\n", CALL(cuMemcpyBatchAsync_v2, to, from, bytes, (size_t)100, &during, &at, (size_t)1, stream));
    ok("cuStreamSynchronize", CALL(cuStreamSynchronize, stream));
    static char kept[100 * PAGE];
    for (unsigned k = 0; k < 100; k++) bytes[k] = PAGE;
    /* The device is reset: all of it is gone, and made again. */
    ok("reset", CALL(cuDevicePrimaryCtxReset_v2, 0));
    usleep(300000);
    ok("cuDevicePrimaryCtxRetain", CALL(cuDevicePrimaryCtxRetain, &context, 0));
    begin();
    ok("cuStreamCreate", CALL(cuStreamCreate, &stream, 1));
    ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &host, (size_t)100 * PAGE, 0));
    ok("cuMemAlloc", CALL(cuMemAlloc_v2, &gpu, (size_t)100 * PAGE));
    fill(host, 100 * PAGE, 99);
    memcpy(kept, host, 100 * PAGE);
    for (unsigned back = 0; back < 2; back++) {
        for (unsigned k = 0; k < 100; k++) to[k] = (void *)(gpu + k * PAGE), from[k] = (char *)host + k * PAGE;
        ok("batch", CALL(cuMemcpyBatchAsync_v2, back ? from : to, back ? to : from, bytes, (size_t)100, &how, &at, (size_t)1, stream));
        ok("cuStreamSynchronize", CALL(cuStreamSynchronize, stream));
        if (!back) memset(host, 0, 100 * PAGE);
    }
    printf("after a reset: wrong %d\n", !!memcmp(host, kept, 100 * PAGE));
    ok("cuMemFree", CALL(cuMemFree_v2, gpu));
    ok("cuMemFreeHost", CALL(cuMemFreeHost, host));
}
/* PTX with so many kernels. */
static char *kernels(int n, int salt) {
    char *text = malloc(100 + 120 * n), *at = text;
    at += sprintf(at, ".version 8.0\n.target sm_90\n.address_size 64\n");
    for (int i = 0; i < n; i++) at += sprintf(at, ".visible .entry k%d(.param .u64 p){ .reg .b32 w; mov.u32 w, %d; ret; }\n", i, salt);
    return text;
}
/* Many threads make, use and free; each thread's results do not depend on the others. */
static int steps;
static unsigned salt;
static void *one(void *number) {
    unsigned seed = ((unsigned)(size_t)number + salt) * 7919 + 1;
    size_t bad = 0;
    void *kept[4] = {0}, *stream;
    size_t length[4] = {0};
    begin();
    ok("cuStreamCreate", CALL(cuStreamCreate, &stream, 1));
    u64 gpu, large = 0;
    ok("cuMemAlloc", CALL(cuMemAlloc_v2, &gpu, (size_t)8 << 20));
    unsigned char *page = malloc(4 << 20);
    for (int i = 0; i < steps; i++) {
        unsigned r = rand_r(&seed), k = r % 4;
        size_t n = (size_t)(1 + r / 4 % 8) << 20;
        if (kept[k]) {
            bad += wrong(kept[k], length[k], k);
            ok("cuMemFreeHost", CALL(cuMemFreeHost, kept[k]));
            kept[k] = 0;
        } else {
            ok("cuMemHostAlloc", CALL(cuMemHostAlloc, &kept[k], n, 0));
            fill(kept[k], length[k] = n, k);
        }
        if (!(r >> 20 & 7)) {
            if (large) ok("cuMemFree", CALL(cuMemFree_v2, large)), large = 0;
            else ok("cuMemAlloc", CALL(cuMemAlloc_v2, &large, (size_t)256 << 20));
        }
        u64 to = large ? large + ((u64)(r >> 24 & 63) << 22) : gpu;
        size_t m = (r >> 8) % (4 << 20);
        fill(page, m, r);
        /* CUDA may read an asynchronous copy's source, and write a synchronous one's destination, after it has returned. */
        ok("to", r & 64 ? CALL(cuMemcpyHtoD_v2, to, page, m) : CALL(cuMemcpyHtoDAsync_v2, to, page, m, stream));
        if (!(r & 64)) ok("sync", CALL(cuStreamSynchronize, stream));
        memset(page, 0, m);
        if (r & 64) ok("sync", CALL(cuStreamSynchronize, (void *)0));
        ok("back", r & 32 && r & 64 ? CALL(cuMemcpyDtoH_v2, page, to, m) : CALL(cuMemcpyDtoHAsync_v2, page, to, m, stream));
        ok("sync", CALL(cuStreamSynchronize, stream));
        bad += wrong(page, m, r);
        if (r % 16 == 3) {
            void *module;
            char *text = kernels(1 + r % 3, rand_r(&seed) & 0x7fffffff);
            ok("code", CALL(cuModuleLoadData, &module, text));
            ok("cuModuleUnload", CALL(cuModuleUnload, module));
            bad += CALL(cuModuleLoadData, &module, "wrong") == 0;
            free(text);
        }
        if (r % 16 == 5) {
            /* The last bytes of a large block. */
            u64 large;
            ok("large", CALL(cuMemAlloc_v2, &large, ((size_t)256 << 20) + m));
            fill(page, m, r);
            ok("to", CALL(cuMemcpyHtoD_v2, large + ((size_t)256 << 20), page, m));
            memset(page, 0, m);
            ok("back", CALL(cuMemcpyDtoH_v2, page, large + ((size_t)256 << 20), m));
            bad += wrong(page, m, r);
            ok("cuMemFree", CALL(cuMemFree_v2, large));
        }
    }
    for (int k = 0; k < 4; k++)
        if (kept[k]) ok("cuMemFreeHost", CALL(cuMemFreeHost, kept[k]));
    if (large) ok("cuMemFree", CALL(cuMemFree_v2, large));
    return (void *)bad;
}
static void threads(int n) {
    pthread_t all[64];
    size_t bad = 0;
    for (int i = 0; i < n; i++) pthread_create(&all[i], 0, one, (void *)(size_t)i);
    for (int i = 0; i < n; i++) {
        void *r;
        pthread_join(all[i], &r);
        bad += (size_t)r;
    }
    printf("threads %d: wrong %zu\n", n, bad);
}
/* One thread launches; another makes set-up calls. Prints the longest launch to standard error: it is another in each run. */
static void entries(void) {
    static const char *names[] = {"cuLaunchKernel", "cuGraphLaunch", "cuStreamSynchronize", "cuMemAlloc_v2", "cuMemcpyDtoDAsync_v2"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        Dl_info at;
        const char *file = dladdr(dlsym(lib, names[i]), &at) ? strrchr(at.dli_fname, '/') : 0;
        printf("%s is CUDA's own: %d\n", names[i], file && strstr(file, "cuda"));
    }
}
/* Code of several kinds, by both calls: results, and whether a module came. */
static void code(void) {
    int names[] = {0, 7, 5, 6}, pointers[] = {17};
    char log[64];
    void *values[] = {(void *)32, (void *)3, log, (void *)sizeof log};
    char *texts[] = {kernels(1, 0), kernels(20, 1), kernels(60, 2), "wrong", "// wrong text", "\x7f" "ELF\2\1\1", ""};
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int again = 0; again < 2; again++) {
            void *module = 0;
            int r = CALL(cuModuleLoadData, &module, texts[i]);
            printf("text %u: %d %d", i, r, module != 0);
            module = 0;
            r = CALL(cuModuleLoadDataEx, &module, texts[i], 4, names, values);
            printf(", with options %d %d", r, module != 0);
            module = 0;
            r = CALL(cuModuleLoadDataEx, &module, texts[i], 1, pointers, values);
            printf(", with names %d %d\n", r, module != 0);
        }
    void *module;
    printf("null: %d\n", CALL(cuModuleLoadData, &module, (void *)0));
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        char path[] = "/tmp/doorbell-code-XXXXXX";
        int file = mkstemp(path);
        ok("write", write(file, texts[i], strlen(texts[i])) < 0);
        printf("file %u: %d", i, CALL(cuModuleLoad, &module, path));
        unlink(path);
        printf(", gone %d, fat binary %d\n", CALL(cuModuleLoad, &module, path), CALL(cuModuleLoadFatBinary, &module, texts[i]));
        close(file);
    }
    /* A text alone, one with code for another chip, one with code for this chip. */
    int chips[] = {0, 80, 90};
    for (unsigned i = 0; i < 3; i++) {
        unsigned char fat[16 + 2 * 80] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 80 * (1 + (i > 0))};
        for (unsigned n = 0; n < 1 + (i > 0); n++) fat[16 + 80 * n] = 1 + n, fat[16 + 80 * n + 4] = 64, fat[16 + 80 * n + 8] = 16, fat[16 + 80 * n + 28] = chips[i];
        printf("entries %u: %d\n", i, CALL(cuModuleLoadFatBinary, &module, fat));
    }
}
static volatile int over;
static void *neighbour(void *copies) {
    begin();
    for (int i = 0; (size_t)copies == 2 && i < 4; i++) {
        void *module;
        ok("code", CALL(cuModuleLoadData, &module, kernels(60, 100 + i)));
        usleep(5000);
    }
    if ((size_t)copies == 2) return over = 1, (void *)0;
    size_t n = 64 << 20;
    u64 gpu;
    char *page = malloc(n);
    memset(page, 1, n);
    ok("cuMemAlloc", CALL(cuMemAlloc_v2, &gpu, n));
    for (int i = 0; i < 10; i++) {
        void *p;
        if ((size_t)copies == 3) ok("memory", CALL(cuMemAlloc_v2, &p, (size_t)2 << 30)), usleep(2000), ok("free", CALL(cuMemFree_v2, p));
        else if (copies) ok("copy", i & 1 ? CALL(cuMemcpyDtoH_v2, page, gpu, n) : CALL(cuMemcpyHtoD_v2, gpu, page, n));
        else ok("pin", CALL(cuMemHostAlloc, &p, n, 0)), ok("free", CALL(cuMemFreeHost, p));
        usleep(5000);
    }
    over = 1;
    return 0;
}
static void hot(int copies, int shared) {
    void *module, *function, *stream;
    u64 word;
    unsigned value = 7;
    void *arguments[] = {&word, &value};
    pthread_t t;
    char handle[64];
    ok("word", CALL(cuMemAlloc_v2, &word, (size_t)4096));
    if (shared) ok("cuIpcGetMemHandle", CALL(cuIpcGetMemHandle, handle, word));
    ok("module", CALL(cuModuleLoadData, &module, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry mark(.param .u64 p, .param .u32 v){ .reg .b64 a; .reg .b32 w; ld.param.u64 a,[p]; ld.param.u32 w,[v]; st.global.u32 [a],w; ret; }"));
    ok("function", CALL(cuModuleGetFunction, &function, module, "mark"));
    ok("stream", CALL(cuStreamCreate, &stream, 1));
    pthread_create(&t, 0, neighbour, (void *)(size_t)copies);
    double longest = 0;
    while (!over) {
        double at = now();
        ok("launch", CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, (void *)0));
        double took = now() - at;
        if (took > longest) longest = took;
        ok("sync", CALL(cuStreamSynchronize, stream));
        usleep(200);
    }
    pthread_join(t, 0);
    fprintf(stderr, "longest %.3f ms\n", longest);
}

/* A kernel more every tenth turn, from a library. Prints what they did, and the longest first launch to standard error. `how`: the library is loaded while no
   context is current (before), or a stream is being captured (capture), it is another one (changed), or it is unloaded and loaded again (again). */
static void late(const char *how) {
    static const char *names[] = {"add1", "count", "mark", "store"};
    static const char text[] = "// a library of four kernels";
    void *library, *kernel[4], *stream, *none = 0;
    u64 word, at[4];
    unsigned value = 7, words[4] = {0};
    int is_before = !strcmp(how, "before"), is_again = !strcmp(how, "again");
    ok("word", CALL(cuMemAlloc_v2, &word, (size_t)4096));
    ok("zero", CALL(cuMemcpyHtoD_v2, word, words, sizeof words));
    ok("stream", CALL(cuStreamCreate, &stream, 1));
    if (!strcmp(how, "capture")) ok("capture", CALL(cuStreamBeginCapture_v2, stream, 0));
    if (is_before || is_again) CALL(cuCtxSetCurrent, none);
    for (int i = 0; i <= is_again; i++) {
        if (i) ok("unload", CALL(cuLibraryUnload, library));
        ok("library", CALL(cuLibraryLoadData, &library, strcmp(how, "changed") ? text : "// another library", none, none, 0, none, none, 0));
    }
    if (is_before || is_again) {
        CALL(cuCtxGetCurrent, &none);
        printf("context before: %d\n", none != 0);
        begin();
    }
    if (!strcmp(how, "capture")) {
        void *graph = 0;
        printf("capture: %d", CALL(cuStreamEndCapture, stream, &graph));
        printf(" %d\n", graph != 0);
    }
    CALL(cuCtxGetCurrent, &none);
    printf("its own context: %d, no such kernel: %d\n", none == context, CALL(cuLibraryGetKernel, &none, library, "none"));
    double first = 0;
    for (int turn = 0; turn < 60; turn++)
        for (int k = 0; k < 4 && k <= turn / 10; k++) {
            void *arguments[] = {&at[k], &value};
            at[k] = word + 4 * k;
            if (turn == 10 * k) ok("kernel", CALL(cuLibraryGetKernel, &kernel[k], library, names[k]));
            double began = now();
            ok("launch", CALL(cuLaunchKernel, kernel[k], 1, 1, 1, 1, 1, 1, 0, stream, arguments, (void *)0));
            double took = now() - began;
            if (turn == 10 * k && took > first) first = took;
            usleep(50);
        }
    ok("sync", CALL(cuStreamSynchronize, stream));
    ok("words", CALL(cuMemcpyDtoH_v2, words, word, sizeof words));
    for (int k = 0; k < 4; k++) printf("%s: %u\n", names[k], words[k]);
    fprintf(stderr, "longest first launch %.3f ms\n", first);
}

int main(int count, char **argument) {
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) return puts("no libcuda"), 1;
    int device;
    ok("cuInit", CALL(cuInit, 0));
    ok("cuDeviceGet", CALL(cuDeviceGet, &device, 0));
    ok("cuDevicePrimaryCtxRetain", CALL(cuDevicePrimaryCtxRetain, &context, device));
    begin();
    if (!strcmp(argument[1], "pins")) pins();
    if (!strcmp(argument[1], "contexts")) contexts();
    if (!strcmp(argument[1], "entries")) entries();
    if (!strcmp(argument[1], "copies")) copies();
    if (!strcmp(argument[1], "batches")) batches();
    if (!strcmp(argument[1], "forks")) forks(count > 2 ? atoi(argument[2]) : 0);
    steps = count > 3 ? atoi(argument[3]) : 40;
    salt = count > 4 ? atoi(argument[4]) : 0;
    if (!strcmp(argument[1], "threads")) threads(atoi(argument[2]));
    if (!strcmp(argument[1], "hot-pins")) hot(0, 0);
    if (!strcmp(argument[1], "hot-copies")) hot(1, 0);
    if (!strcmp(argument[1], "hot-code")) hot(2, 0);
    if (!strcmp(argument[1], "hot-memory")) hot(3, count > 2);
    if (!strcmp(argument[1], "memory")) memory();
    if (!strcmp(argument[1], "shares")) shares(argument[2]);
    if (!strcmp(argument[1], "code")) code();
    if (!strcmp(argument[1], "late")) late(count > 2 ? argument[2] : "");
    return 0;
}
