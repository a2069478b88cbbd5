/* A CUDA graph launched by doorbell, past CUDA's locks: is every result right, also beside a thread that sets things up?
 *
 *   crates/gpu/libdoorbell/install.sh --prefix target/prefix
 *   cc -O2 -pthread examples/c/launch.c -o target/prefix/launch -Itarget/prefix/include -Ltarget/prefix/lib \
 *      -Wl,-rpath,'$ORIGIN/lib' -ldoorbell -ldl
 *   target/prefix/launch [launches, 100000]
 *
 * The graph is captured from a stream: three kernels, one after the other. The first stores a number in a word of GPU memory, the second adds 1
 * for each of its threads, the third copies the word to host memory. doorbell_graph_create() clones it. Each launch of ours gets a number of its own
 * (doorbell_graph_set_param), and what lies in host memory after it is compared. In between CUDA launches the graph itself: that has the number with which it was
 * captured, and goes on to work.
 *
 * Meanwhile another thread loads and unloads a module, and allocates and frees memory: calls that hold CUDA's locks for a long time. At the end the
 * program says how long a launch took, ours and CUDA's: the call, and until the result was there. (Not on the software GPU: that is emulation.)
 *
 * Exit status 0: every result right; 1: otherwise; 77: no CUDA, or graphs cannot be cloned here. */
#define _GNU_SOURCE
#include "driver_api.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

static doorbell_t *doorbell;

enum { BLOCKS = 4, THREADS = 64, FIRST = 1000000, EACH = 4 };
#define PATIENCE UINT64_C(10000000000)

/* The part of the CUDA driver API that is needed. */
typedef unsigned long long address_t;
static int (*cuInit)(unsigned);
static int (*cuDeviceGet)(int *, int);
static int (*cuDeviceGetName)(char *, int, int);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc)(address_t *, size_t);
static int (*cuMemFree)(address_t);
static int (*cuMemHostAlloc)(void **, size_t, unsigned);
static int (*cuStreamCreate)(void **, unsigned);
static int (*cuStreamSynchronize)(void *);
static int (*cuStreamBeginCapture)(void *, int);
static int (*cuStreamEndCapture)(void *, void **);
static int (*cuModuleLoadData)(void **, const void *);
static int (*cuModuleUnload)(void *);
static int (*cuModuleGetFunction)(void **, void *, const char *);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*cuGraphInstantiate)(void **, void *, unsigned long long);
static int (*cuGraphLaunch)(void *, void *);
static int (*cuGraphExecDestroy)(void *);
static int (*cuGraphDestroy)(void *);
static void *context;

/* store(word, value): *word = value. add1(word): adds 1 for each thread. copy(to, from, bytes): one thread copies. */
static const char PTX[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry store(.param .u64 word, .param .u32 value)\n"
    "{\n"
    "    .reg .b64 %word;\n"
    "    .reg .b32 %value;\n"
    "    ld.param.u64 %word, [word];\n"
    "    ld.param.u32 %value, [value];\n"
    "    st.global.u32 [%word], %value;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry add1(.param .u64 word)\n"
    "{\n"
    "    .reg .b64 %word;\n"
    "    ld.param.u64 %word, [word];\n"
    "    red.global.add.u32 [%word], 1;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 bytes)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b64 %to, %from;\n"
    "    .reg .b32 %bytes, %value;\n"
    "    ld.param.u64 %to, [to];\n"
    "    ld.param.u64 %from, [from];\n"
    "    ld.param.u32 %bytes, [bytes];\n"
    "AGAIN:\n"
    "    setp.eq.u32 %p, %bytes, 0;\n"
    "    @%p bra DONE;\n"
    "    ld.global.u8 %value, [%from];\n"
    "    st.global.u8 [%to], %value;\n"
    "    add.u64 %to, %to, 1;\n"
    "    add.u64 %from, %from, 1;\n"
    "    sub.u32 %bytes, %bytes, 1;\n"
    "    bra AGAIN;\n"
    "DONE:\n"
    "    ret;\n"
    "}\n";

static int load_cuda(void)
{
    const struct function functions[] = {
        {&cuInit, "cuInit"}, {&cuDeviceGet, "cuDeviceGet"}, {&cuDeviceGetName, "cuDeviceGetName"},
        {&cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"},
        {&cuCtxSetCurrent, "cuCtxSetCurrent"}, {&cuMemAlloc, "cuMemAlloc_v2"}, {&cuMemFree, "cuMemFree_v2"},
        {&cuMemHostAlloc, "cuMemHostAlloc"}, {&cuStreamCreate, "cuStreamCreate"}, {&cuStreamSynchronize, "cuStreamSynchronize"},
        {&cuStreamBeginCapture, "cuStreamBeginCapture_v2"}, {&cuStreamEndCapture, "cuStreamEndCapture"},
        {&cuModuleLoadData, "cuModuleLoadData"}, {&cuModuleUnload, "cuModuleUnload"},
        {&cuModuleGetFunction, "cuModuleGetFunction"}, {&cuLaunchKernel, "cuLaunchKernel"},
        {&cuGraphInstantiate, "cuGraphInstantiateWithFlags"}, {&cuGraphLaunch, "cuGraphLaunch"},
        {&cuGraphExecDestroy, "cuGraphExecDestroy"}, {&cuGraphDestroy, "cuGraphDestroy"},
    };
    return load_functions(functions, sizeof functions / sizeof *functions);
}

static _Atomic int stop;
static unsigned long set_up;

/* What delays CUDA's own launches. */
static void *sets_up(void *unused)
{
    (void)unused;
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    do {
        void *module;
        address_t memory;
        cuda(cuModuleLoadData(&module, PTX), "cuModuleLoadData");
        cuda(cuMemAlloc(&memory, 1 << 20), "cuMemAlloc");
        cuda(cuMemFree(memory), "cuMemFree");
        cuda(cuModuleUnload(module), "cuModuleUnload");
        set_up++;
    } while (!stop);
    return NULL;
}

/* The program's: a word of GPU memory, a word of host memory, a stream, and the graph of the three kernels. */
static address_t word;
static volatile uint32_t *result;
static void *stream, *exec;

static void make_graph(void)
{
    void *module, *kernels[3], *pointer, *graph;
    const char *names[3] = {"store", "add1", "copy"};
    cuda(cuModuleLoadData(&module, PTX), "cuModuleLoadData");
    for (int i = 0; i < 3; i++)
        cuda(cuModuleGetFunction(&kernels[i], module, names[i]), "cuModuleGetFunction");
    cuda(cuMemAlloc(&word, 4), "cuMemAlloc");
    cuda(cuMemHostAlloc(&pointer, 4096, 0), "cuMemHostAlloc");
    result = pointer;
    cuda(cuStreamCreate(&stream, 1), "cuStreamCreate");
    address_t to = (address_t)(uintptr_t)pointer;
    uint32_t value = FIRST, bytes = 4;
    void *store[] = {&word, &value}, *add[] = {&word}, *copy[] = {&to, &word, &bytes};
    /* Of this thread alone. */
    cuda(cuStreamBeginCapture(stream, 1), "cuStreamBeginCapture");
    cuda(cuLaunchKernel(kernels[0], 1, 1, 1, 1, 1, 1, 0, stream, store, NULL), "cuLaunchKernel");
    cuda(cuLaunchKernel(kernels[1], BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, add, NULL), "cuLaunchKernel");
    cuda(cuLaunchKernel(kernels[2], 1, 1, 1, 1, 1, 1, 0, stream, copy, NULL), "cuLaunchKernel");
    cuda(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    cuda(cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
    cuda(cuGraphDestroy(graph), "cuGraphDestroy");
}

static unsigned long wrong;

static void expect(uint32_t value, const char *whose)
{
    uint32_t found = *result;
    if (found != value + BLOCKS * THREADS && wrong++ < 10)
        fprintf(stderr, "WRONG: %s left %" PRIu32 ", not %" PRIu32 "\n", whose, found, value + BLOCKS * THREADS);
    *result = 0;
}

/* Nanoseconds of the call, and until the result was there. */
struct series { const char *whose; uint64_t *call, *done; size_t count; };

static struct series series(const char *whose, size_t most)
{
    struct series s = {whose, malloc(most * 8), malloc(most * 8), 0};
    if (!s.call || !s.done)
        exit(1);
    return s;
}

static void took(struct series *s, uint64_t begun, uint64_t called)
{
    s->call[s->count] = called - begun;
    s->done[s->count++] = now() - begun;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Nearest ranks; one with fewer than ten samples beyond it is left out. */
static void print_ranks(const char *what, uint64_t *samples, size_t count)
{
    const struct { const char *name; size_t of_a_thousand; } ranks[] = {{"p50", 500}, {"p99", 990}, {"p99.9", 999}};
    qsort(samples, count, sizeof *samples, ascending);
    printf("  %s", what);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        if (count * (1000 - ranks[i].of_a_thousand) >= 10000)
            printf("  %s %.3f", ranks[i].name, (double)samples[(count * ranks[i].of_a_thousand + 999) / 1000 - 1] / 1e3);
    printf("  max %.3f us\n", (double)samples[count - 1] / 1e3);
}

static void print_series(struct series *s)
{
    printf("%s, %zu launches\n", s->whose, s->count);
    print_ranks("the call", s->call, s->count);
    print_ranks("result there", s->done, s->count);
}

int main(int argc, char **argv)
{
    unsigned long launches = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
    struct series ours = series("doorbell", launches), theirs = series("CUDA", launches);
    char name[64] = "";
    int device;
    doorbell_options_t options;
    doorbell_graph_t graph;
    pthread_t thread;
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Before CUDA is initialised: from now on its calls to the kernel driver are seen. */
    int watching = doorbell_init();
    if (!load_cuda()) {
        printf("no libcuda: there are no graphs\n");
        return 77;
    }
    check(watching, "doorbell_init");
    cuda(cuInit(0), "cuInit");
    cuda(cuDeviceGet(&device, 0), "cuDeviceGet");
    cuda(cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
    cuda(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    make_graph();
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.kind = DOORBELL_BESIDE_CUDA;
    check(doorbell_create(&options, &doorbell), "doorbell_create");
    /* It is launched a few times by CUDA, and its words are read. */
    int prepared = doorbell_graph_create(doorbell, exec, stream, &graph);
    if (prepared == DOORBELL_UNAVAILABLE) {
        printf("the graph cannot be cloned: %s\n", doorbell_error_detail());
        return 77;
    }
    check(prepared, "doorbell_graph_create");
    expect(FIRST, "CUDA's launch");
    if (pthread_create(&thread, NULL, sets_up, NULL) != 0)
        return 1;
    for (uint32_t i = 0; i < launches; i++) {
        doorbell_ticket_t ticket;
        uint64_t begun = now(), called;
        /* Kernel 0, its second argument: behind a pointer of 8 bytes. */
        check(doorbell_graph_set_param(doorbell, graph, 0, 8, &i, sizeof i), "doorbell_graph_set_param");
        check(doorbell_graph_launch(doorbell, graph, NULL, &ticket), "doorbell_graph_launch");
        called = now();
        check(doorbell_wait(doorbell, ticket, PATIENCE), "doorbell_wait");
        took(&ours, begun, called);
        expect(i, "doorbell's launch");
        if (i % EACH == 0) {
            begun = now();
            cuda(cuGraphLaunch(exec, stream), "cuGraphLaunch");
            called = now();
            cuda(cuStreamSynchronize(stream), "cuStreamSynchronize");
            took(&theirs, begun, called);
            expect(FIRST, "CUDA's launch");
        }
    }
    stop = 1;
    pthread_join(thread, NULL);
    printf("%zu launches by doorbell and %zu by CUDA beside %lu set-ups: %s\n", ours.count, theirs.count, set_up,
           wrong ? "there are WRONG results" : "every result right");
    if (strcmp(name, "softcuda") != 0 && ours.count > 0) {
        print_series(&ours);
        print_series(&theirs);
    }
    check(doorbell_graph_free(doorbell, graph), "doorbell_graph_free");
    check(doorbell_free(doorbell), "doorbell_free");
    cuda(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    return wrong ? 1 : 0;
}
