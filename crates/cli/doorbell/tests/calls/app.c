/* CUDA calls, reached in the way that the first argument names. Its output is the same with and without doorbell. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../inside.h"

typedef uint64_t u64;
typedef uint32_t u32;
typedef struct { u32 x, y, z; } dim3;
typedef int launch_t(void *, u32, u32, u32, u32, u32, u32, u32, void *, void **, void **);

#ifdef RUNTIME
int cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, u64 shared, void *stream);
int __cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, u64 shared, void *stream);
int cudaMemcpyAsync(void *to, const void *from, u64 n, int kind, void *stream);
int cudaMemcpyBatchAsync(void *const *, const void *const *, const u64 *, u64, void *, u64 *, u64, void *stream);
int cudaStreamSynchronize(void *stream);
int cudaDeviceSynchronize(void);
#endif
/* Batches of copies, as CUDA 12.8 and CUDA 13 have them. */
typedef struct { u64 type, at, row, layer, hint; } operand;
typedef struct { operand from, to; u64 x, y, z, order; } operation;
typedef int batch_12(const u64 *to, const u64 *from, const u64 *bytes, u64 n, void *attributes, u64 *of, u64 of_n,
                     u64 *failed, void *stream);
typedef int batch_13(const u64 *to, const u64 *from, const u64 *bytes, u64 n, void *attributes, u64 *of, u64 of_n,
                     void *stream);
typedef int boxes_12(u64 n, const operation *, u64 *failed, u64 flags, void *stream);
typedef int boxes_13(u64 n, const operation *, u64 flags, void *stream);
typedef int export_table(const void **table, const char *which);

#ifdef DRIVER
batch_12 cuMemcpyBatchAsync;
batch_13 cuMemcpyBatchAsync_v2;
boxes_12 cuMemcpy3DBatchAsync;
boxes_13 cuMemcpy3DBatchAsync_v2;
export_table cuGetExportTable;
launch_t cuLaunchKernel, cuLaunchKernel_ptsz;
int cuMemcpyHtoD_v2(u64 to, const void *from, u64 n);
int cuMemcpy2D_v2(const u64 *c);
int cuLaunchKernelEx(const u32 *config, void *f, void **params, void **extra);
int cuEventQuery(void *e);
int cuStreamCreate(void **stream, u32 flags);
int cuStreamDestroy_v2(void *stream);
int cuLibraryLoadData(void **library, const void *code, void *, void *, u32, void *, void *, u32);
int cuStreamSynchronize(void *stream);
u64 cuStubSum(void);
int cuStubMost(void);
extern void (*volatile cuStubWithin)(void);
/* A table of functions, as a program may have one: relocations of data. */
static launch_t *const table[] = {cuLaunchKernel, cuLaunchKernel_ptsz};
#endif

static u64 value = 0x1234567890;
static void *params[] = {&value};
#define P(n) ((void *)(u64)(n))

static void *need(void *lib, const char *name) {
    void *f = dlsym(lib, name);
    if (!f) printf("no %s\n", name), exit(3);
    return f;
}

/* What it has copied, by its own count, and the addresses of the first copy. */
static void line(u64 stream, int result, u64 copies, u64 bytes, u64 to, u64 from) {
    printf("%lx %d %lu %lu %lx %lx\n", (long)stream, result, (long)copies, (long)bytes, (long)to, (long)from);
}
static void batches(batch_12 *batch12, batch_13 *batch13, boxes_12 *boxes12, boxes_13 *boxes13, export_table *get) {
    enum { MANY = 5000 };
    static u64 to[MANY], from[MANY], n[MANY], sums[MANY + 1];
    u64 failed12 = 0, failed13 = 0, of = 0;
    for (u64 i = 0; i < MANY; i++) to[i] = 0xd000 + i, from[i] = 0xabc + i, n[i] = i + 1, sums[i + 1] = sums[i] + n[i];
    line(0x51, batch12(to, from, n, 64, params, &of, 1, &failed12, P(0x51)), 64, sums[64], to[0], from[0]);
    line(0x52, batch13(to, from, n, 64, params, &of, 1, P(0x52)), 64, sums[64], to[0], from[0]);
    line(0x53, batch13(to + 1, from, n, 1, params, &of, 1, P(0x53)), 1, 1, to[1], from[0]);
    line(0x54, batch13(to, from, n, MANY, params, &of, 1, P(0x54)), MANY, sums[MANY], to[0], from[0]);
    line(0x55, batch13(0, 0, 0, 0, 0, 0, 0, P(0x55)), 0, 0, 0, 0);
    operation o[] = {{{1, 0x1000}, {1, 0x2000}, 100, 20, 1, 1}, {{1, 0x3000}, {1, 0x4000}, 7, 5, 3, 1}};
    line(0x56, boxes12(2, o, &failed13, 0, P(0x56)), 2, 2105, 0x2000, 0x1000);
    line(0x57, boxes13(2, o, 0, P(0x57)), 2, 2105, 0x2000, 0x1000);
    /* Into a CUDA array of four bytes an element. */
    o[1].to.type = 2;
    line(0x58, boxes13(2, o, 0, P(0x58)), 2, 2000 + 4 * 105, 0x2000, 0x1000);
    const void *table;
    int r[] = {get(&table, "\1first"), get(&table, "\2none"), get(&table, "\1second")};
    fprintf(stderr, "failed %lu %lu tables %d %d %d\n", (long)failed12, (long)failed13, r[0], r[1], r[2]);
}

/* By cuGetProcAddress, with the versions that libcudart asks for. */
static void batches_found(void) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *f[5];
    int (*get)(const char *, void **, int, u64) = need(lib, "cuGetProcAddress");
    const struct { const char *name; int version; } all[] = {{"cuMemcpyBatchAsync", 12080}, {"cuMemcpyBatchAsync", 13000},
        {"cuMemcpy3DBatchAsync", 12080}, {"cuMemcpy3DBatchAsync", 13000}, {"cuGetExportTable", 3000}};
    for (int i = 0; i < 5; i++) {
        if (get(all[i].name, &f[i], all[i].version, 0)) puts("not found");
    }
    batches(f[0], f[1], f[2], f[3], f[4]);
}

#ifdef DRIVER
static void linked(void) {
    int r[11], i = 0;
    void *made, *library;
    r[i++] = cuLaunchKernel(P(0xf1), 6, 7, 8, 32, 2, 3, 48, P(0x51), params, P(11));
    r[i++] = cuLaunchKernel_ptsz(P(0xf2), 9, 1, 1, 32, 2, 3, 48, 0, params, P(11));
    r[i++] = table[0](P(0xf3), 3, 1, 1, 1, 1, 1, 0, P(0x53), 0, 0);
    errno = 33;
    r[i++] = cuEventQuery(P(0xe1));
    int kept = errno;
    r[i++] = cuMemcpyHtoD_v2(0xd000, P(0xabc), 5);
    int set = errno;
    u64 c[16] = {0};
    c[14] = 100, c[15] = 20;
    r[i++] = cuMemcpy2D_v2(c);
    struct { u32 w[8]; void *stream; void *attributes; u32 n; } config = {{5, 4, 3, 2, 1, 1, 64}, P(0x55), 0, 0};
    r[i++] = cuLaunchKernelEx(config.w, P(0xf4), params, 0);
    r[i++] = cuLaunchKernelEx(0, P(0xf4), params, 0);
    r[i++] = cuStreamCreate(&made, 1);
    r[i++] = cuStreamDestroy_v2(made);
    r[i++] = cuLibraryLoadData(&library, P(0xc0de), 0, 0, 0, 0, P(0x1b), 12);
    if (library != P(0xc0de)) puts("no library");
    for (int k = 0; k < i; k++) printf("%d ", r[k]);
    printf("errno %d %d sum %lx\n", kept, set, (long)cuStubSum());
}
#endif

static void found(int local) {
    if (dlsym(RTLD_DEFAULT, "cuLaunchKernel")) puts("there before it is loaded");
    void *lib = dlopen("libcuda.so.1", local ? RTLD_LAZY | RTLD_LOCAL : RTLD_NOW | RTLD_GLOBAL);
    launch_t *launch = need(lib, "cuLaunchKernel");
    int (*copy)(u64, const void *, u64, void *) = need(lib, "cuMemcpyHtoDAsync_v2_ptsz");
    int (*old)(u32, const void *, u32) = need(lib, "cuMemcpyHtoD");
    u64 (*sum)(void) = need(lib, "cuStubSum");
    int (*get)(const char *, void **, int, u64) = need(lib, "cuGetProcAddress");
    printf("%d ", launch(P(0xf1), 6, 7, 8, 32, 2, 3, 48, P(0x51), params, P(11)));
    printf("%d %d ", copy(0xd000, P(0xabc), 4096, P(0x52)), old(1, 0, 2));
    launch_t *again;
    int (*first)(u32, const void *, u32);
    printf("%d ", get("cuLaunchKernel", (void **)&again, 12000, 2));
    printf("%d ", again(P(0xf5), 2, 2, 2, 1, 1, 1, 0, 0, 0, 0));
    printf("%d ", get("cuMemcpyHtoD", (void **)&first, 2000, 0));
    printf("%d ", first(1, 0, 2));
    printf("default %d sum %lx\n", !!dlsym(RTLD_DEFAULT, "cuLaunchKernel"), (long)sum());
    if (local && dlclose(lib)) puts("not closed");
}

/* Libraries that are loaded and unloaded, and contain the runtime. */
static int plugin(const char *name, u32 n, int keep) {
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int r = lib ? ((int (*)(u32))need(lib, "work"))(n) : (puts(dlerror()), -1);
    if (lib && !keep) dlclose(lib);
    return r;
}
static void plugins(void) {
    printf("%d ", plugin("./plugin-now.so", 1, 0));
    for (u32 i = 0; i < 3; i++) plugin("./plugin-now.so", 7, 0);
    printf("%d ", plugin("./plugin-lazy.so", 2, 1));
    printf("%d ", plugin("./plugin-now.so", 3, 0));
    printf("%d\n", plugin("./plugin-now.so", 4, 1));
}
static void *comes_and_goes(void *v) {
    for (u32 i = 1; i <= 100; i++) {
        if (plugin(i % 2 ? "./plugin-now.so" : "./plugin-lazy.so", i, 0) != (int)i) puts("wrong");
    }
    return v;
}
static void churn(void) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(t + i, 0, comes_and_goes, 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    puts("done");
}

#ifdef RUNTIME
static void runtime(void) {
    int r[4];
    r[0] = cudaLaunchKernel(P(0xf1), (dim3){6, 7, 8}, (dim3){32, 2, 3}, params, 48, P(0x51));
    r[1] = cudaMemcpyAsync(P(0xd000), P(0xabc), 1 << 20, 1, P(0x52));
    r[2] = cudaStreamSynchronize(P(0x51));
    r[3] = __cudaLaunchKernel(P(0xf6), (dim3){5, 1, 1}, (dim3){32, 1, 1}, params, 0, P(0x56));
    printf("%d %d %d %d\n", r[0], r[1], r[2], r[3]);
}

static void runtime_batch(void) {
    void *to[] = {P(0xd000), P(0xd800)};
    const void *from[] = {P(0xabc), P(0xabd)};
    u64 n[] = {4096, 77}, of = 0;
    line(0x59, cudaMemcpyBatchAsync(to, from, n, 2, params, &of, 1, P(0x59)), 2, 4173, 0xd000, 0xabc);
}

static pthread_key_t key;
/* Runs after the thread's variables were destroyed. */
static void last(void *v) {
    static _Thread_local int round;
    if (round++ < 3) pthread_setspecific(key, v);
    cudaLaunchKernel(v, (dim3){1, 1, 1}, (dim3){1, 1, 1}, params, 0, 0);
}
static void *thread(void *v) {
    pthread_setspecific(key, v);
    for (int i = 0; i < 100; i++) cudaMemcpyAsync(v, P(0xabc), i, 4, 0);
    return 0;
}
static void threads(void) {
    pthread_key_create(&key, last);
    pthread_t t[20];
    for (int round = 0; round < 3; round++) {
        for (long i = 0; i < 20; i++) pthread_create(t + i, 0, thread, P(1000 + i));
        for (long i = 0; i < 20; i++) pthread_join(t[i], 0);
    }
    puts("done");
}

static void forked(void) {
    cudaDeviceSynchronize();
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (!child) {
            int r = cudaLaunchKernel(P(0xf1), (dim3){6, 7, 8}, (dim3){1, 1, 1}, params, 0, 0);
            _exit(r == 6 ? 0 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        printf("child %d\n", status);
    }
    printf("%d\n", cudaLaunchKernel(P(0xf1), (dim3){4, 1, 1}, (dim3){1, 1, 1}, params, 0, 0));
}

static volatile int waiter;
static void *waits(void *v) {
    waiter = gettid();
    cudaStreamSynchronize(P(0xdead));
    return v;
}
static void until_it_waits(void) {
    while (!waiter) usleep(100);
    until_inside(waiter, SYS_pause);
}
static void killed(void) {
    pthread_t t;
    pthread_create(&t, 0, waits, 0);
    until_it_waits();
    kill(getpid(), SIGKILL);
}

/* Cancelled in a call, which is unwound. */
static void cancelled(void) {
    pthread_t t;
    pthread_create(&t, 0, waits, 0);
    until_it_waits();
    pthread_cancel(t);
    void *r;
    pthread_join(t, &r);
    printf("cancelled %d\n", r == PTHREAD_CANCELED);
    printf("%d\n", cudaLaunchKernel(P(0xf1), (dim3){4, 1, 1}, (dim3){1, 1, 1}, params, 0, 0));
}
#endif

#ifdef DRIVER
static void *copies(void *v) {
    for (int i = 0; i < 10; i++) cuMemcpyHtoD_v2((u64)v, P(0xabc), 77);
    return v;
}
/* One of the stub's functions calls back into this program, which calls again. */
static void within(void) {
    cuStubWithin = 0;
    cuMemcpyHtoD_v2(1, P(0xabc), 1);
}
static void guarded(void) {
    pthread_t t[8];
    for (long i = 0; i < 8; i++) pthread_create(t + i, 0, copies, P(i));
    for (long i = 0; i < 8; i++) pthread_join(t[i], 0);
    cuStubWithin = within;
    cuLaunchKernel(P(0xf1), 6, 7, 8, 32, 2, 3, 48, P(0x51), params, P(11));
    pid_t child = fork();
    if (!child) _exit(cuLaunchKernel(P(0xf1), 6, 7, 8, 32, 2, 3, 48, 0, params, 0) == 6 ? 0 : 1);
    int status;
    waitpid(child, &status, 0);
    printf("most at a time: %s, child %d\n", cuStubMost() == 1 ? "1" : "more", status);
}
/* The GPU of one copy waits for the launch of another thread. */
static volatile int launched, inside;
static void until_launched(void) {
    inside = 1;
    while (!launched) usleep(1000);
}
static void *blocks(void *v) {
    cuStubWithin = until_launched;
    cuLaunchKernel(P(0xf1), 1, 1, 1, 1, 1, 1, 0, 0, params, 0);
    return v;
}
static void dependent(void) {
    pthread_t t;
    pthread_create(&t, 0, blocks, 0);
    while (!inside) usleep(100);
    cuStubWithin = 0;
    cuMemcpyHtoD_v2(1, P(0xabc), 1);
    launched = 1;
    pthread_join(t, 0);
    puts("both returned");
}
#endif

#ifdef DRIVER
static int launch_one(void) { return cuLaunchKernel(P(0xf1), 6, 1, 1, 1, 1, 1, 0, 0, params, 0); }

/* Calls that end without returning. */
static void ends_here(void) {
    cuStubWithin = 0;
    pthread_exit(P(5));
}
static void *ends(void *v) {
    cuStubWithin = ends_here;
    launch_one();
    return v;
}
static jmp_buf away;
static void jumps(void) {
    cuStubWithin = 0;
    longjmp(away, 1);
}
static __attribute__((noinline)) int deeper(void) {
    volatile char room[65536];
    room[0] = 1;
    return launch_one() * room[0];
}
static void *copies_once(void *v) { return P(cuMemcpyHtoD_v2(1, P(0xabc), 1)); }
static void left(void) {
    pthread_t t;
    void *r;
    pthread_create(&t, 0, ends, 0);
    pthread_join(t, &r);
    printf("%ld %d ", (long)r, launch_one());
    cuStubWithin = jumps;
    if (!setjmp(away)) launch_one();
    /* Lower on the stack than the call that did not return, and higher. */
    printf("%d ", deeper());
    printf("%d ", launch_one());
    pthread_create(&t, 0, copies_once, 0);
    pthread_join(t, &r);
    printf("%ld\n", (long)r);
}

/* The program ends while a thread is in a call, and its last handler calls, too. */
static volatile int is_stuck;
static void stays(void) {
    puts("inside");
    fflush(stdout);
    is_stuck = 1;
    for (;;) pause();
}
static void *stuck(void *v) {
    cuStubWithin = stays;
    launch_one();
    return v;
}
static void at_the_end(void) {
    cuStubWithin = 0;
    printf("at the end %d\n", cuMemcpyHtoD_v2(1, P(0xabc), 1));
}
static void ended(void) {
    pthread_t t;
    atexit(at_the_end);
    pthread_create(&t, 0, stuck, 0);
    while (!is_stuck) usleep(100);
}
#endif

static void variants(void) {
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*get)(const char *, void **, int, u64) = need(lib, "cuGetProcAddress");
    for (int i = 0; i < 10; i++) {
        int (*query)(void *) = 0;
        get("cuEventQuery", (void **)&query, 20000 + i, 0);
        printf("%d ", query(0));
    }
    puts("");
}

/* A library that is loaded repeatedly, each time at another address. */
static void reloads(void) {
    for (u32 i = 1; i <= 12; i++) {
        void *lib = dlopen("libcuda.so.1", RTLD_NOW);
        launch_t *launch = need(lib, "cuLaunchKernel");
        Dl_info at;
        int found = dladdr(need(lib, "cuStubSum"), &at);
        printf("%d ", launch(P(0xf1), i, 1, 1, 1, 1, 1, 0, 0, params, 0));
        dlclose(lib);
        if (!found || mmap(at.dli_fbase, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at.dli_fbase)
            puts("it is not gone");
    }
    puts("");
}

/* Forks while another thread looks up a function; the child looks one up, too. */
static volatile int over;
static void *looks(void *v) {
    while (!over) dlsym(RTLD_DEFAULT, "own_function");
    return v;
}
static void looks_and_forks(void) {
    pthread_t t[2];
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY);
    for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, looks, 0);
    int bad = 0;
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(20);
            launch_t *launch = need(lib, "cuLaunchKernel");
            _exit(launch(P(0xf1), 6, 7, 8, 32, 2, 3, 48, P(0x51), params, P(11)) != 6);
        }
        int status;
        waitpid(child, &status, 0);
        bad += status != 0;
    }
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    printf("%d children failed\n", bad);
}

#pragma weak cuLaunchCooperativeKernel
extern int cuLaunchCooperativeKernel(void);

/* A program without CUDA: it finds no CUDA function, and lookups work as before. */
static void without(void) {
    const char *names[] = {"cuLaunchKernel", "cudaLaunchKernel", "cuGetProcAddress", "cudaMemcpy", "cuInit"};
    for (int i = 0; i < 5; i++) {
        if (dlsym(RTLD_DEFAULT, names[i]) || dlsym(RTLD_NEXT, names[i])) printf("%s is there\n", names[i]);
    }
    const char *e = dlerror();
    printf("%s weak %d\n", e ? strrchr(e, ':') : "no error", cuLaunchCooperativeKernel != 0);
    void *own = dlsym(RTLD_DEFAULT, "own_function"), *next = dlsym(RTLD_NEXT, "own_function");
    printf("own %d next %d ", own != 0, next != 0);
    void *a = dlvsym(RTLD_NEXT, "pthread_cond_wait", "GLIBC_2.2.5"), *b = dlsym(RTLD_NEXT, "pthread_cond_signal");
    Dl_info i;
    void *write = dlsym(RTLD_NEXT, "write");
    printf("%d %d %s\n", a != 0, b != 0, write && dladdr(write, &i) ? strrchr(i.dli_fname, '/') : "?");
    errno = 12;
    dlsym(RTLD_DEFAULT, "write");
    printf("errno %d\n", errno);
}
int own_function(void) { return 1; }

int main(int n, char **v) {
    const char *how = n > 1 ? v[1] : "";
    if (!strcmp(how, "found")) found(0);
    if (!strcmp(how, "found-local")) found(1), found(1);
    if (!strcmp(how, "without")) without();
    if (!strcmp(how, "plugins")) plugins();
    if (!strcmp(how, "reloads")) reloads();
    if (!strcmp(how, "churn")) churn();
    if (!strcmp(how, "variants")) variants();
    if (!strcmp(how, "batches-found")) batches_found();
    if (!strcmp(how, "looks-and-forks")) looks_and_forks();
#ifdef DRIVER
    if (!strcmp(how, "linked")) linked();
    if (!strcmp(how, "batches"))
        batches(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_v2, cuGetExportTable);
    if (!strcmp(how, "guarded")) guarded();
    if (!strcmp(how, "dependent")) dependent();
    if (!strcmp(how, "left")) left();
    if (!strcmp(how, "ended")) ended();
#endif
#ifdef RUNTIME
    if (!strcmp(how, "runtime")) runtime();
    if (!strcmp(how, "runtime-batch")) runtime_batch();
    if (!strcmp(how, "threads")) threads();
    if (!strcmp(how, "forked")) forked();
    if (!strcmp(how, "killed")) killed();
    if (!strcmp(how, "cancelled")) cancelled();
#endif
    return 0;
}
