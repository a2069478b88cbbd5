/* CUDA graphs launched by doorbell, beside CUDA: order, parameters, and what must be an error. Prints nothing unless
 * something is wrong. */
#define _GNU_SOURCE
#include "expect.h"
#include "driver_api.h"
#include <pthread.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void *stream, *module;
static volatile uint32_t *words;

/* One thread. */
static void run(const char *name, void **arguments)
{
    EXPECT(cuLaunchKernel(kernel_of(module, name), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), 0);
}

/* words[at] = value; then the log, which begins at word 64, gets that number. */
static void *store_and_log(unsigned at, uint32_t value)
{
    address_t word = (address_t)(uintptr_t)&words[at], log = (address_t)(uintptr_t)&words[64];
    void *store[] = {&word, &value}, *arguments[] = {&log, &value};
    EXPECT(cuStreamBeginCapture(stream, 1), 0);
    run("store", store);
    run("log", arguments);
    return captured(stream);
}

static void begin_session(void)
{
    doorbell_options_t options = {.size = sizeof options, .kind = DOORBELL_BESIDE_CUDA, .lanes = 1, .profile = ""};
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_OK);
}

static doorbell_ticket_t launched(doorbell_graph_t graph)
{
    doorbell_ticket_t ticket = 0;
    int code;
    do
        code = doorbell_graph_launch(doorbell, graph, NULL, &ticket);
    while (code == DOORBELL_FULL || code == DOORBELL_BUSY);
    EXPECT(code, DOORBELL_OK);
    return ticket;
}

/* Many under way: they run in the order in which they were launched, each with its own parameters. */
static void in_order(doorbell_graph_t first, doorbell_graph_t second)
{
    enum { LAUNCHES = 120 };
    doorbell_ticket_t last = 0;
    words[64] = 0;
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        doorbell_graph_t graph = i % 3 ? first : second;
        int code;
        do
            code = doorbell_graph_set_param(doorbell, graph, 1, 8, &i, 4);
        while (code == DOORBELL_BUSY);
        EXPECT(code, DOORBELL_OK);
        last = launched(graph);
    }
    EXPECT(doorbell_wait(doorbell, last, PATIENCE), DOORBELL_OK);
    IS(words[64], LAUNCHES);
    for (uint32_t i = 0; i < LAUNCHES; i++)
        IS(words[65 + i], i);
}

/* The stream stores a number, a launch copies it, the stream copies what is there then: each waits for the other. */
static void with_a_stream(void)
{
    enum { ROUNDS = 40, FROM = 8, TO = 9, SEEN = 600 };
    address_t from = (address_t)(uintptr_t)&words[FROM], to = (address_t)(uintptr_t)&words[TO];
    uint32_t bytes = 4;
    void *copy[] = {&to, &from, &bytes};
    doorbell_graph_t ours;
    doorbell_ticket_t ticket;
    EXPECT(cuStreamBeginCapture(stream, 1), 0);
    run("copy", copy);
    ours = cloned(doorbell, captured(stream), stream);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        address_t seen = (address_t)(uintptr_t)&words[SEEN + i];
        void *look[] = {&seen, &to, &bytes};
        int code;
        EXPECT(cuMemsetD32Async(from, i, 1, stream), 0);
        while ((code = doorbell_graph_launch(doorbell, ours, AFTER_STREAM(stream), &ticket)) == DOORBELL_FULL)
            ;
        EXPECT(code, DOORBELL_OK);
        EXPECT(doorbell_stream_wait(doorbell, stream, ticket), DOORBELL_OK);
        run("copy", look);
    }
    EXPECT(cuStreamSynchronize(stream), 0);
    EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
    for (uint32_t i = 0; i < ROUNDS; i++)
        IS(words[SEEN + i], i);
    EXPECT(doorbell_graph_free(doorbell, ours), DOORBELL_OK);
}

/* A launch for which there is no room leaves nothing behind: neither in the stream nor of the 1,024 orders. */
static void full_behind_a_stream(doorbell_graph_t graph)
{
    doorbell_ticket_t ticket = 0, last;
    int launches = 0, code;
    words[11] = 0;
    EXPECT(cuStreamWaitValue32(stream, (address_t)(uintptr_t)&words[11], 1, 0), 0);
    while ((code = doorbell_graph_launch(doorbell, graph, AFTER_STREAM(stream), &last)) == DOORBELL_OK && launches++ < 100)
        ticket = last;
    IS(launches, 32);
    for (int i = 0; i < 1100; i++)
        EXPECT(doorbell_graph_launch(doorbell, graph, AFTER_STREAM(stream), &last), DOORBELL_FULL);
    EXPECT(doorbell_stream_wait(doorbell, stream, ticket), DOORBELL_OK);
    words[11] = 1;
    EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
    EXPECT(cuStreamSynchronize(stream), 0);
}

/* Memory that the graph itself fills is pinned: when CUDA frees it, nothing is launched any more, whoever has the address then. */
static void freed_memory(void)
{
    address_t block, next;
    doorbell_graph_t ours;
    doorbell_ticket_t ticket;
    address_t word = (address_t)(uintptr_t)&words[4];
    uint32_t value = 1;
    void *store[] = {&word, &value};
    EXPECT(cuMemAlloc(&block, 4096), 0);
    EXPECT(cuStreamBeginCapture(stream, 1), 0);
    EXPECT(cuMemsetD32Async(block, 5, 16, stream), 0);
    run("store", store);
    ours = cloned(doorbell, captured(stream), stream);
    EXPECT(doorbell_wait(doorbell, launched(ours), PATIENCE), DOORBELL_OK);
    launched(ours);
    EXPECT(cuMemFree(block), 0);
    EXPECT(doorbell_graph_launch(doorbell, ours, NULL, &ticket), DOORBELL_FREED);
    EXPECT(cuMemAlloc(&next, 4096), 0);
    IS(next == block, 1);
    EXPECT(doorbell_graph_launch(doorbell, ours, NULL, &ticket), DOORBELL_FREED);
    EXPECT(doorbell_graph_free(doorbell, ours), DOORBELL_OK);
    EXPECT(cuMemFree(next), 0);
}

/* A pointer into buffers: of CUDA's memory, which is pinned for the graph, and of doorbell's own, which the graph keeps. */
static void pointers(void)
{
    address_t block, word = (address_t)(uintptr_t)&words[10];
    uint32_t value = 21;
    void *pointer, *store[] = {&word, &value};
    volatile uint32_t *own;
    doorbell_graph_t ours;
    doorbell_buffer_t cudas, allocated;
    doorbell_ticket_t ticket;
    EXPECT(cuStreamBeginCapture(stream, 1), 0);
    run("store", store);
    ours = cloned(doorbell, captured(stream), stream);
    EXPECT(cuMemAlloc(&block, 4096), 0);
    EXPECT(doorbell_buffer_register(doorbell, (void *)(uintptr_t)block, 4096, &cudas), DOORBELL_OK);
    EXPECT(doorbell_buffer_create(doorbell, DOORBELL_HOST, 4096, &allocated, &pointer), DOORBELL_OK);
    own = pointer;
    EXPECT(doorbell_graph_set_pointer(doorbell, ours, 0, 0, cudas, 4096), DOORBELL_OUTSIDE);
    EXPECT(doorbell_graph_set_pointer(doorbell, ours, 0, 8, cudas, 0), DOORBELL_OUTSIDE);
    EXPECT(doorbell_graph_set_pointer(doorbell, ours, 1, 0, cudas, 0), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_set_pointer(doorbell, ours, 0, 0, cudas + 1, 0), DOORBELL_HANDLE);
    EXPECT(doorbell_graph_set_pointer(doorbell, ours, 0, 0, cudas, 16), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, launched(ours), PATIENCE), DOORBELL_OK);
    EXPECT(doorbell_copy(doorbell, allocated, 0, cudas, 16, 4, DOORBELL_FOREVER), DOORBELL_OK);
    IS(own[0], 21);
    EXPECT(doorbell_buffer_free(doorbell, cudas), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, launched(ours), PATIENCE), DOORBELL_OK);
    EXPECT(cuMemFree(block), 0);
    EXPECT(doorbell_graph_launch(doorbell, ours, NULL, &ticket), DOORBELL_FREED);
    EXPECT(doorbell_graph_set_pointer(doorbell, ours, 0, 0, allocated, 64), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, launched(ours), PATIENCE), DOORBELL_OK);
    IS(own[16], 21);
    own[16] = 0;
    EXPECT(doorbell_buffer_free(doorbell, allocated), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, launched(ours), PATIENCE), DOORBELL_OK);
    IS(own[16], 21);
    launched(ours);
    EXPECT(doorbell_graph_free(doorbell, ours), DOORBELL_OK);
    IS(words[10], 21);
}

/* A kernel by itself. */
static void alone(void)
{
    const uint32_t one[3] = {1, 1, 1};
    uint32_t value = 31;
    address_t word = (address_t)(uintptr_t)&words[11];
    void *arguments[] = {&word, &value}, *store = kernel_of(module, "store");
    doorbell_graph_t graph = 0;
    words[11] = 0;
    EXPECT(doorbell_graph_create_kernel(doorbell, store, one, one, 0, arguments, NULL, &graph), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_create_kernel(doorbell, NULL, one, one, 0, arguments, stream, &graph), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_create_kernel(doorbell, store, NULL, one, 0, arguments, stream, &graph), DOORBELL_ARGUMENT);
    IS(words[11], 0);
    EXPECT(doorbell_graph_create_kernel(doorbell, store, one, one, 0, arguments, stream, &graph), DOORBELL_OK);
    IS(words[11], 31);
    words[11] = 0;
    EXPECT(doorbell_wait(doorbell, launched(graph), PATIENCE), DOORBELL_OK);
    IS(words[11], 31);
    value = 32;
    EXPECT(doorbell_graph_set_param(doorbell, graph, 0, 8, &value, sizeof value), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, launched(graph), PATIENCE), DOORBELL_OK);
    IS(words[11], 32);
    EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
}

static void *launches_some(void *graph)
{
    for (int i = 0; i < 40; i++)
        EXPECT(doorbell_wait(doorbell, launched(*(doorbell_graph_t *)graph), PATIENCE), DOORBELL_OK);
    return NULL;
}

static void by_two_threads(doorbell_graph_t first, doorbell_graph_t second)
{
    pthread_t other;
    words[64] = 0;
    IS(pthread_create(&other, NULL, launches_some, &first), 0);
    launches_some(&second);
    pthread_join(other, NULL);
    IS(words[64], 80);
}

static void wrong_arguments(doorbell_graph_t graph)
{
    doorbell_graph_t none;
    doorbell_ticket_t ticket;
    uint32_t sizes[2] = {0}, value = 0;
    size_t count = 0;
    EXPECT(doorbell_graph_create(doorbell, NULL, stream, &none), DOORBELL_CUDA);
    EXPECT(doorbell_graph_create(doorbell, stream, stream, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_kernels(doorbell, graph, NULL, 0, &count), DOORBELL_OK);
    IS(count, 2);
    EXPECT(doorbell_graph_kernels(doorbell, graph, sizes, 2, &count), DOORBELL_OK);
    IS(sizes[0], 12);
    IS(sizes[1], 12);
    EXPECT(doorbell_graph_kernels(doorbell, graph, NULL, 1, &count), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_kernels(doorbell, graph, NULL, 0, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_set_param(doorbell, graph, 2, 0, &value, 4), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_set_param(doorbell, graph, 0, 9, &value, 4), DOORBELL_OUTSIDE);
    EXPECT(doorbell_graph_set_param(doorbell, graph, 0, UINT32_MAX, &value, 4), DOORBELL_OUTSIDE);
    EXPECT(doorbell_graph_set_param(doorbell, graph, 0, 8, NULL, 4), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_launch(doorbell, graph, NULL, NULL), DOORBELL_ARGUMENT);
    for (doorbell_graph_t wrong = 0; wrong < 2; wrong++) {
        doorbell_graph_t handle = wrong ? graph + 1 : 0;
        EXPECT(doorbell_graph_launch(doorbell, handle, NULL, &ticket), DOORBELL_HANDLE);
        EXPECT(doorbell_graph_set_param(doorbell, handle, 0, 8, &value, 4), DOORBELL_HANDLE);
        EXPECT(doorbell_graph_kernels(doorbell, handle, NULL, 0, &count), DOORBELL_HANDLE);
        EXPECT(doorbell_graph_free(doorbell, handle), DOORBELL_HANDLE);
    }
    EXPECT(doorbell_graph_launch(doorbell, graph, AFTER_STREAM(stream), NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_launch(doorbell, graph + 1, AFTER_STREAM(stream), &ticket), DOORBELL_HANDLE);
}

/* CUDA's channel has an entry of its own at the end of each quarter of its ring, 256 entries. Graphs are prepared across the first of these ends. */
static void across_an_end(void *before)
{
    for (int i = 0; i < 230; i++)
        EXPECT(cuGraphLaunch(before, stream), 0);
    EXPECT(cuStreamSynchronize(stream), 0);
    for (uint32_t i = 0; i < 10; i++) {
        doorbell_graph_t graph;
        void *exec = store_and_log(3, i);
        words[64] = 0;
        EXPECT(doorbell_graph_create(doorbell, exec, stream, &graph), DOORBELL_OK);
        EXPECT(doorbell_wait(doorbell, launched(graph), PATIENCE), DOORBELL_OK);
        IS(words[3], i);
        IS(words[64], 4);
        EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
        EXPECT(cuGraphExecDestroy(exec), 0);
    }
}

/* Without a kernel there is nothing whose end could be counted. */
static void no_kernels(void)
{
    doorbell_graph_t none;
    EXPECT(cuStreamBeginCapture(stream, 1), 0);
    EXPECT(cuMemsetD32Async((address_t)(uintptr_t)&words[0], 1, 4, stream), 0);
    EXPECT(doorbell_graph_create(doorbell, captured(stream), stream, &none), DOORBELL_GRAPH);
}

static void in_a_child(doorbell_graph_t graph, doorbell_ticket_t ticket)
{
    doorbell_graph_t none;
    uint32_t value = 0;
    pid_t child = fork();
    if (child == 0) {
        failures = 0;
        EXPECT(doorbell_graph_launch(doorbell, graph, NULL, &ticket), DOORBELL_FORKED);
        EXPECT(doorbell_wait(doorbell, ticket, 1), DOORBELL_FORKED);
        EXPECT(doorbell_graph_set_param(doorbell, graph, 0, 8, &value, 4), DOORBELL_FORKED);
        EXPECT(doorbell_graph_create(doorbell, stream, stream, &none), DOORBELL_FORKED);
        EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_FORKED);
        /* Handles that were none before. */
        EXPECT(doorbell_graph_launch(doorbell, graph + 1, NULL, &ticket), DOORBELL_FORKED);
        EXPECT(doorbell_wait(doorbell, 0, 1), DOORBELL_FORKED);
        EXPECT(doorbell_copy(doorbell, 1, 0, 2, 0, 8, 1), DOORBELL_FORKED);
        _exit(failures != 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    IS(status, 0);
}

/* A kernel that stores where nothing is: the channel is dead then, and says so. (On a GPU CUDA's context is, too.) */
static void killed(void *exec)
{
    doorbell_graph_t graph;
    doorbell_ticket_t ticket;
    uint64_t nowhere = UINT64_C(0x123456789000);
    EXPECT(doorbell_graph_create(doorbell, exec, stream, &graph), DOORBELL_OK);
    EXPECT(doorbell_graph_set_param(doorbell, graph, 0, 0, &nowhere, 8), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, launched(graph), PATIENCE), DOORBELL_KILLED);
    EXPECT(doorbell_graph_launch(doorbell, graph, NULL, &ticket), DOORBELL_KILLED);
    EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
}

/* Two lanes of launches: while one waits for a stream, the other goes on. */
static void on_lanes(void)
{
    doorbell_options_t options = {.size = sizeof options, .kind = DOORBELL_BESIDE_CUDA, .profile = "", .launch_lanes = 17};
    doorbell_graph_t graphs[2], none = 0;
    doorbell_ticket_t waits, behind;
    uint32_t value = 18;
    bool done;
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_ARGUMENT);
    /* A program of before there were any: what lies behind its struct is not looked at. */
    options.size = offsetof(doorbell_options_t, launch_lanes);
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_OK);
    EXPECT(doorbell_graph_create(doorbell, store_and_log(7, 16), stream, &graphs[0]), DOORBELL_OK);
    EXPECT(doorbell_graph_create_copy(doorbell, graphs[0], 1, &none), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_create_copy(doorbell, graphs[0], DOORBELL_OWN_LAUNCH_LANE, &none), DOORBELL_OK);
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    options.size = sizeof options;
    options.launch_lanes = 2;
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_OK);
    EXPECT(doorbell_graph_create(doorbell, store_and_log(7, 17), stream, &none), DOORBELL_OK);
    for (uint32_t lane = 0; lane < 2; lane++)
        EXPECT(doorbell_graph_create_copy(doorbell, none, lane, &graphs[lane]), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, none), DOORBELL_OK);
    EXPECT(doorbell_graph_create_copy(doorbell, none, 0, &graphs[0]), DOORBELL_HANDLE);
    EXPECT(doorbell_graph_create_copy(doorbell, graphs[0], 0, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_set_param(doorbell, graphs[1], 0, 8, &value, 4), DOORBELL_OK);
    words[7] = words[11] = 0;
    EXPECT(cuStreamWaitValue32(stream, (address_t)(uintptr_t)&words[11], 1, 0), 0);
    EXPECT(doorbell_graph_launch(doorbell, graphs[0], AFTER_STREAM(stream), &waits), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, launched(graphs[1]), PATIENCE), DOORBELL_OK);
    IS(words[7], 18);
    EXPECT(doorbell_graph_launch(doorbell, graphs[1], AFTER(waits), &behind), DOORBELL_OK);
    EXPECT(doorbell_poll(doorbell, behind, &done), DOORBELL_OK);
    IS(done, 0);
    words[7] = 0;
    words[11] = 1;
    EXPECT(doorbell_wait(doorbell, behind, PATIENCE), DOORBELL_OK);
    EXPECT(doorbell_poll(doorbell, waits, &done), DOORBELL_OK);
    IS(done, 1);
    IS(words[7], 18);
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
}

int main(void)
{
    void *pointer;
    doorbell_graph_t first = 0, second = 0, none;
    doorbell_ticket_t ticket;
    begin_beside_cuda("nothing to test");
    EXPECT(cuMemHostAlloc(&pointer, 4096, 0), 0);
    words = pointer;
    EXPECT(cuStreamCreate(&stream, 1), 0);
    EXPECT(cuModuleLoadData(&module, ".version 8.0\n"), 0);
    void *executables[2] = {store_and_log(0, 7), store_and_log(1, 9)};
    EXPECT(doorbell_graph_create(doorbell, executables[0], stream, &none), DOORBELL_ARGUMENT); /* no session */
    begin_session();
    EXPECT(doorbell_graph_create(doorbell, executables[0], stream, &first), DOORBELL_OK);
    EXPECT(doorbell_graph_create(doorbell, executables[1], stream, &second), DOORBELL_OK);
    wrong_arguments(first);
    no_kernels();
    across_an_end(executables[0]);
    in_order(first, second);
    by_two_threads(first, second);
    with_a_stream();
    full_behind_a_stream(first);
    freed_memory();
    pointers();
    alone();
    IS(words[0], 7);
    IS(words[1], 9);
    /* What was cloned needs it no more. */
    EXPECT(cuGraphExecDestroy(executables[0]), 0);
    words[0] = 0;
    EXPECT(doorbell_wait(doorbell, launched(first), PATIENCE), DOORBELL_OK);
    IS(words[0], 7);
    ticket = launched(second);
    in_a_child(first, ticket);
    EXPECT(doorbell_graph_free(doorbell, second), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, second), DOORBELL_HANDLE);
    EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
    /* Closed while launches are under way; handles of before are no handles then. */
    launched(first);
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    EXPECT(doorbell_graph_launch(doorbell, first, NULL, &ticket), DOORBELL_CLOSED);
    begin_session();
    EXPECT(doorbell_graph_launch(doorbell, first, NULL, &ticket), DOORBELL_HANDLE);
    /* CUDA has uploaded that one already, unseen by this session. */
    EXPECT(doorbell_graph_create(doorbell, executables[1], stream, &second), DOORBELL_GRAPH);
    EXPECT(doorbell_graph_create(doorbell, store_and_log(2, 11), stream, &second), DOORBELL_OK);
    words[2] = 0;
    EXPECT(doorbell_wait(doorbell, launched(second), PATIENCE), DOORBELL_OK);
    IS(words[2], 11);
    killed(store_and_log(5, 13));
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    /* The next channel works. */
    begin_session();
    EXPECT(doorbell_graph_create(doorbell, store_and_log(6, 15), stream, &second), DOORBELL_OK);
    words[6] = 0;
    EXPECT(doorbell_wait(doorbell, launched(second), PATIENCE), DOORBELL_OK);
    IS(words[6], 15);
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    on_lanes();
    return failures != 0;
}
