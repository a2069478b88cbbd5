/* What undelayed.c has beside its copies: threads that load modules, allocate, register, create streams or instantiate graphs. */
#ifndef NEIGHBOURS_H
#define NEIGHBOURS_H

#include "driver_api.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KERNELS = 400, NODES = 2000 };
#define BLOCK ((size_t)64 << 20) /* what neighbours allocate and register */

enum kind { NOTHING, MODULE, DEVICE, PINNED, REGISTER, STREAM, GRAPH, KINDS };
static const char *const names[KINDS] = {"nothing", "module", "device", "pinned", "register", "stream", "graph"};
static const char *const calls[KINDS] = {"", "cuModuleLoadData, 400 kernels of PTX", "cuMemAlloc, 64 MiB", "cuMemHostAlloc, 64 MiB",
    "cuMemHostRegister, 64 MiB", "cuStreamCreate", "cuGraphInstantiate, 2,000 kernels"};

static atomic_int ended;
/* From then on neighbours pause. */
static _Atomic uint64_t pause_at;

struct neighbour {
    pthread_t id;
    enum kind kind;
    unsigned number;
    uint64_t done, longest, salt;
    int status;           /* CUDA's error that ended it */
    const char *refused;  /* in which call */
    char *ptx;
    void *memory, *module, *function, *graph, *stream;
    unsigned long long cell;
};

/* So many kernels, and no text twice: the driver keeps what it has compiled. */
static void write_ptx(struct neighbour *n, unsigned kernels)
{
    size_t at = 0, room = 256 + (size_t)kernels * 512;
    if (!n->ptx && !(n->ptx = malloc(room)))
        exit(2);
    n->salt++;
    at += (size_t)snprintf(n->ptx, room, ".version 7.0\n.target sm_70\n.address_size 64\n");
    for (unsigned k = 0; k < kernels; k++)
        at += (size_t)snprintf(n->ptx + at, room - at,
            ".visible .entry k%u_%u_%" PRIu64 "(.param .u64 cell)\n{\n .reg .b32 %%r<4>;\n .reg .b64 %%rd<3>;\n"
            " ld.param.u64 %%rd1, [cell];\n cvta.to.global.u64 %%rd2, %%rd1;\n ld.volatile.global.u32 %%r1, [%%rd2];\n"
            " add.u32 %%r2, %%r1, %u;\n sub.u32 %%r3, %%r2, %u;\n st.volatile.global.u32 [%%rd2], %%r3;\n ret;\n}\n",
            k, n->number, n->salt, k + 4, k + 3);
}

static int failed(struct neighbour *n, int status, const char *what)
{
    if (status != 0 && !n->status) {
        n->status = status;
        n->refused = what;
    }
    return status != 0;
}

/* A chain of kernels, captured once. */
static int make_graph(struct neighbour *n)
{
    char name[64];
    write_ptx(n, 1);
    snprintf(name, sizeof name, "k0_%u_%" PRIu64, n->number, n->salt);
    void *arguments[] = {&n->cell};
    if (failed(n, cuMemAlloc(&n->cell, 4), "cuMemAlloc") || failed(n, cuStreamCreate(&n->stream, 1), "cuStreamCreate") ||
        failed(n, cuModuleLoadData(&n->module, n->ptx), "cuModuleLoadData") ||
        failed(n, cuModuleGetFunction(&n->function, n->module, name), "cuModuleGetFunction") ||
        failed(n, cuStreamBeginCapture(n->stream, 2), "cuStreamBeginCapture"))
        return 0;
    for (int i = 0; i < NODES; i++)
        if (failed(n, cuLaunchKernel(n->function, 1, 1, 1, 1, 1, 1, 0, n->stream, arguments, NULL), "cuLaunchKernel"))
            break;
    return !failed(n, cuStreamEndCapture(n->stream, &n->graph), "cuStreamEndCapture") && !n->status;
}

static int ready(struct neighbour *n)
{
    switch (n->kind) {
    case REGISTER:
        n->memory = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (n->memory == MAP_FAILED)
            return !failed(n, 2, "mmap");
        memset(n->memory, 0x5a, BLOCK);
        return 1;
    case GRAPH:
        return make_graph(n);
    case MODULE:
        write_ptx(n, KERNELS);
        return 1;
    default:
        return 1;
    }
}

/* One call, and what gives its result back. The longer of the two. */
static uint64_t call(struct neighbour *n)
{
    void *made = NULL;
    unsigned long long address = 0;
    uint64_t start = now(), middle;
    int status = 0;
    switch (n->kind) {
    case MODULE: status = cuModuleLoadData(&made, n->ptx); break;
    case DEVICE: status = cuMemAlloc(&address, BLOCK); break;
    case PINNED: status = cuMemHostAlloc(&made, BLOCK, 0); break;
    case REGISTER: status = cuMemHostRegister(n->memory, BLOCK, 0); break;
    case STREAM: status = cuStreamCreate(&made, 1); break;
    case GRAPH: status = cuGraphInstantiate(&made, n->graph, 0); break;
    default: break;
    }
    middle = now();
    if (failed(n, status, calls[n->kind]))
        return 0;
    switch (n->kind) {
    case MODULE: status = cuModuleUnload(made); break;
    case DEVICE: status = cuMemFree(address); break;
    case PINNED: status = cuMemFreeHost(made); break;
    case REGISTER: status = cuMemHostUnregister(n->memory); break;
    case STREAM: status = cuStreamDestroy(made); break;
    case GRAPH: status = cuGraphExecDestroy(made); break;
    default: break;
    }
    uint64_t end = now();
    if (n->kind == MODULE)
        write_ptx(n, KERNELS);
    failed(n, status, "the call that gives it back");
    return middle - start > end - middle ? middle - start : end - middle;
}

static pthread_barrier_t all_ready;

static void *neighbour(void *argument)
{
    struct neighbour *n = argument;
    int good = !failed(n, cuCtxSetCurrent(context), "cuCtxSetCurrent") && ready(n);
    pthread_barrier_wait(&all_ready);
    while (good && !n->status && (n->done == 0 || !ended)) {
        if (now() >= pause_at && !ended) {
            usleep(100);
            continue;
        }
        uint64_t took = call(n);
        if (n->status)
            break;
        n->done++;
        n->longest = took > n->longest ? took : n->longest;
    }
    if (n->kind == REGISTER && n->memory && n->memory != MAP_FAILED)
        munmap(n->memory, BLOCK);
    if (n->graph)
        cuGraphDestroy(n->graph);
    if (n->module)
        cuModuleUnload(n->module);
    if (n->stream)
        cuStreamDestroy(n->stream);
    if (n->cell)
        cuMemFree(n->cell);
    free(n->ptx);
    return NULL;
}

#endif
