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
#include "samples.h"
#include <pthread.h>
#include <stdatomic.h>

enum { BLOCKS = 4, THREADS = 64, FIRST = 1000000, EACH = 4 };

/* store(word, value): *word = value. */
static const char PTX[] =
    COPY_AND_ADD1
    ".visible .entry store(.param .u64 word, .param .u32 value)\n"
    "{\n"
    "    .reg .b64 %word;\n"
    "    .reg .b32 %value;\n"
    "    ld.param.u64 %word, [word];\n"
    "    ld.param.u32 %value, [value];\n"
    "    st.global.u32 [%word], %value;\n"
    "    ret;\n"
    "}\n";

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
    void *module, *kernels[3], *pointer;
    const char *names[3] = {"store", "add1", "copy"};
    cuda(cuModuleLoadData(&module, PTX), "cuModuleLoadData");
    for (int i = 0; i < 3; i++)
        kernels[i] = kernel_of(module, names[i]);
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
    exec = captured(stream);
}

static unsigned long wrong;

static void expect(uint32_t value, const char *whose)
{
    uint32_t found = *result;
    if (found != value + BLOCKS * THREADS && wrong++ < 10)
        fprintf(stderr, "WRONG: %s left %" PRIu32 ", not %" PRIu32 "\n", whose, found, value + BLOCKS * THREADS);
    *result = 0;
}

/* The call, and until the result was there. */
struct series { struct samples call, done; };

static void took(struct series *s, uint64_t begun, uint64_t called)
{
    add(&s->call, called - begun);
    add(&s->done, now() - begun);
}

int main(int argc, char **argv)
{
    unsigned long launches = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
    struct series ours = {0}, theirs = {0};
    doorbell_graph_t graph;
    pthread_t thread;
    begin_beside_cuda("there are no graphs");
    make_graph();
    open_session(0, 0);
    /* It is launched a few times by CUDA, and its words are read. */
    graph = cloned(doorbell, exec, stream);
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
    printf("%zu launches by doorbell and %zu by CUDA beside %lu set-ups: %s\n", ours.call.count, theirs.call.count, set_up,
           wrong ? "there are WRONG results" : "every result right");
    if (!is_software()) {
        say("doorbell, the call", &ours.call);
        say("doorbell, result there", &ours.done);
        say("CUDA, the call", &theirs.call);
        say("CUDA, result there", &theirs.done);
    }
    check(doorbell_graph_free(doorbell, graph), "doorbell_graph_free");
    check(doorbell_free(doorbell), "doorbell_free");
    cuda(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    return wrong ? 1 : 0;
}
