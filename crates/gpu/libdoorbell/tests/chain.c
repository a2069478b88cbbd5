/* Chains of copies and launches, and launches and copies that wait for each other's tickets, beside CUDA: what they leave, and what must be an error. Prints
 * nothing unless something is wrong. */
#define _GNU_SOURCE
#include "expect.h"
#include "driver_api.h"
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 65536 };
static void *stream, *module;

/* In pinned memory of CUDA's: what goes to the GPU, and what comes back. */
static uint8_t *up, *down;
static address_t first, second;
static doorbell_buffer_t ups, downs, firsts, seconds;

/* Copies from the first block of the GPU's memory to the second, and adds 1 to its first word. */
static doorbell_graph_t graph_of(uint32_t bytes)
{
    void *copy[] = {&second, &first, &bytes}, *add[] = {&second};
    EXPECT(cuStreamBeginCapture(stream, 1), 0);
    EXPECT(cuLaunchKernel(kernel_of(module, "copy"), 1, 1, 1, 1, 1, 1, 0, stream, copy, NULL), 0);
    EXPECT(cuLaunchKernel(kernel_of(module, "add1"), 1, 1, 1, 1, 1, 1, 0, stream, add, NULL), 0);
    return cloned(doorbell, captured(stream), stream);
}

static doorbell_step_t copied(doorbell_buffer_t to, doorbell_buffer_t from, uint64_t bytes, uint32_t flags)
{
    doorbell_step_t step;
    memset(&step, 0, sizeof step);
    step.kind = DOORBELL_STEP_COPY;
    step.flags = flags;
    step.to = to;
    step.from = from;
    step.bytes = bytes;
    return step;
}

static doorbell_step_t launched(doorbell_graph_t graph)
{
    doorbell_step_t step;
    memset(&step, 0, sizeof step);
    step.kind = DOORBELL_STEP_LAUNCH;
    step.graph = graph;
    return step;
}

static void fill(uint32_t seed, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        up[i] = (uint8_t)(seed * 7 + i * 13 + (i >> 8));
    memset(down, 0xee, bytes + 8);
}

static int right(size_t bytes)
{
    uint32_t was, is;
    memcpy(&was, up, 4);
    memcpy(&is, down, 4);
    return is == was + 1 && memcmp(up + 4, down + 4, bytes - 4) == 0 && down[bytes] == 0xee;
}

static void every_size(void)
{
    static const uint32_t sizes[] = {8, 100, 4096, 16384, 16388, MOST};
    static const uint32_t flags[] = {0, DOORBELL_STEP_INLINE, DOORBELL_STEP_ENGINE, DOORBELL_STEP_STORES, DOORBELL_STEP_STORES, 0};
    static const uint32_t orders[] = {0, DOORBELL_CHAIN_COUNTER, DOORBELL_CHAIN_ENGINES | DOORBELL_CHAIN_HOST_COUNTER, 0,
                                      DOORBELL_CHAIN_BESIDE, DOORBELL_CHAIN_BESIDE | DOORBELL_CHAIN_HOST_COUNTER};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        doorbell_graph_t graph = graph_of(sizes[s]);
        for (uint32_t how = 0; how < sizeof flags / sizeof *flags; how++) {
            doorbell_step_t steps[] = {copied(firsts, ups, sizes[s], flags[how]), launched(graph), copied(downs, seconds, sizes[s], 0)};
            doorbell_graph_t chain;
            doorbell_ticket_t ticket;
            EXPECT(doorbell_chain_create(doorbell, steps, 3, sizeof(doorbell_step_t), orders[how], &chain), DOORBELL_OK);
            for (uint32_t n = 0; n < 3; n++) {
                fill(s * 18 + how * 3 + n, sizes[s]);
                EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_OK);
                EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
                IS(right(sizes[s]), 1);
            }
            EXPECT(doorbell_graph_free(doorbell, chain), DOORBELL_OK);
        }
        EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
    }
}

/* Many are queued, each with the bytes that lay there when it was launched, and with a target of its own for its kernel. */
static void queued(void)
{
    enum { CHAINS = 120 };
    doorbell_graph_t graph = graph_of(8), chain;
    doorbell_step_t steps[] = {copied(firsts, ups, 8, DOORBELL_STEP_INLINE), launched(graph)};
    doorbell_ticket_t ticket = 0;
    size_t kernels = 0;
    EXPECT(doorbell_chain_create(doorbell, steps, 2, sizeof(doorbell_step_t), 0, &chain), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
    EXPECT(doorbell_graph_kernels(doorbell, chain, NULL, 0, &kernels), DOORBELL_OK);
    IS(kernels, 2);
    for (uint64_t i = 0; i < CHAINS; i++) {
        address_t to = (address_t)(uintptr_t)(down + 8 * i);
        int code;
        memcpy(up, &i, 8);
        EXPECT(doorbell_graph_set_param(doorbell, chain, 0, 0, &to, 8), DOORBELL_OK);
        while ((code = doorbell_graph_launch(doorbell, chain, NULL, &ticket)) == DOORBELL_FULL)
            ;
        EXPECT(code, DOORBELL_OK);
    }
    EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
    for (uint64_t i = 0; i < CHAINS; i++)
        IS(memcmp(down + 8 * i, &i, 8), 0);
    EXPECT(doorbell_graph_free(doorbell, chain), DOORBELL_OK);
}

/* The same frame's way by lanes of their own: each submission waits for the ticket of the one before. */
static void by_tickets(void)
{
    doorbell_graph_t graph = graph_of(4096);
    doorbell_transfer_t in, out;
    doorbell_piece_t piece = {downs, 0, seconds, 0, 4096};
    doorbell_ticket_t a, b, c;
    EXPECT(doorbell_transfer_create(doorbell, firsts, 0, ups, 0, 4096, &in), DOORBELL_OK);
    EXPECT(doorbell_transfer_create(doorbell, downs, 0, seconds, 0, 4096, &out), DOORBELL_OK);
    for (uint32_t n = 0; n < 40; n++) {
        fill(n, 4096);
        EXPECT(doorbell_transfer_async(doorbell, in, NULL, &a), DOORBELL_OK);
        EXPECT(doorbell_graph_launch(doorbell, graph, AFTER(a), &b), DOORBELL_OK);
        if (n % 2)
            EXPECT(doorbell_transfer_async(doorbell, out, AFTER(b), &c), DOORBELL_OK);
        else
            EXPECT(doorbell_copy_batch_async(doorbell, &piece, 1, sizeof(doorbell_piece_t), AFTER(b), &c), DOORBELL_OK);
        EXPECT(doorbell_wait(doorbell, c, PATIENCE), DOORBELL_OK);
        IS(right(4096), 1);
        /* What is done is waited for by nobody. */
        EXPECT(doorbell_transfer_async(doorbell, in, AFTER(c), &a), DOORBELL_OK);
        EXPECT(doorbell_wait(doorbell, a, PATIENCE), DOORBELL_OK);
    }
    EXPECT(doorbell_graph_launch(doorbell, graph, AFTER(0), &a), DOORBELL_HANDLE);
    EXPECT(doorbell_graph_launch(doorbell, graph, AFTER(b + 100), &a), DOORBELL_HANDLE);
    EXPECT(doorbell_graph_launch(doorbell, graph, AFTER(b), NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_graph_launch(doorbell, graph + 1, AFTER(b), &a), DOORBELL_HANDLE);
    EXPECT(doorbell_transfer_async(doorbell, out, AFTER(graph), &a), DOORBELL_HANDLE);
    EXPECT(doorbell_transfer_async(doorbell, graph, AFTER(b), &a), DOORBELL_HANDLE);
    EXPECT(doorbell_copy_batch_async(doorbell, &piece, 1, sizeof(doorbell_piece_t), AFTER(0), &a), DOORBELL_HANDLE);
    EXPECT(doorbell_copy_batch_async(doorbell, NULL, 1, sizeof(doorbell_piece_t), AFTER(b), &a), DOORBELL_ARGUMENT);
    EXPECT(doorbell_transfer_free(doorbell, in), DOORBELL_OK);
    EXPECT(doorbell_transfer_free(doorbell, out), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
}

static void wrong_steps(void)
{
    doorbell_graph_t graph = graph_of(64), chain, none;
    doorbell_step_t good[] = {copied(firsts, ups, 64, 0), launched(graph), copied(downs, seconds, 64, 0)};
    EXPECT(doorbell_chain_create(doorbell, good, 3, sizeof(doorbell_step_t), 0, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_chain_create(doorbell, NULL, 3, sizeof(doorbell_step_t), 0, &none), DOORBELL_ARGUMENT);
    EXPECT(doorbell_chain_create(doorbell, good, 0, sizeof(doorbell_step_t), 0, &none), DOORBELL_GRAPH);
    EXPECT(doorbell_chain_create(doorbell, good, 3, sizeof(doorbell_step_t), 16, &none), DOORBELL_ARGUMENT);
    EXPECT(doorbell_chain_create(doorbell, good, 3, sizeof(doorbell_step_t), DOORBELL_CHAIN_ENGINES | DOORBELL_CHAIN_COUNTER, &none), DOORBELL_ARGUMENT);
    EXPECT(doorbell_chain_create(doorbell, good, 3, sizeof(doorbell_step_t), 0, &chain), DOORBELL_OK);
    struct { uint32_t kind, flags; doorbell_graph_t graph; doorbell_buffer_t to, from; uint64_t offset, bytes; int wanted; } wrong[] = {
        {2, 0, 0, 0, 0, 0, 0, DOORBELL_ARGUMENT},
        {DOORBELL_STEP_LAUNCH, 1, graph, 0, 0, 0, 0, DOORBELL_ARGUMENT},
        {DOORBELL_STEP_COPY, 3, 0, firsts, ups, 0, 8, DOORBELL_ARGUMENT},
        {DOORBELL_STEP_LAUNCH, 0, graph + 1, 0, 0, 0, 0, DOORBELL_HANDLE},
        {DOORBELL_STEP_LAUNCH, 0, ups, 0, 0, 0, 0, DOORBELL_HANDLE},
        {DOORBELL_STEP_LAUNCH, 0, chain, 0, 0, 0, 0, DOORBELL_GRAPH},
        {DOORBELL_STEP_COPY, 0, 0, graph, ups, 0, 8, DOORBELL_HANDLE},
        {DOORBELL_STEP_COPY, 0, 0, firsts, ups, 4, MOST, DOORBELL_OUTSIDE},
        {DOORBELL_STEP_COPY, 0, 0, firsts, ups, 0, 0, DOORBELL_ARGUMENT},
        {DOORBELL_STEP_COPY, DOORBELL_STEP_INLINE, 0, firsts, seconds, 0, 8, DOORBELL_ARGUMENT},
        {DOORBELL_STEP_COPY, DOORBELL_STEP_STORES | DOORBELL_STEP_INLINE, 0, firsts, ups, 0, 8, DOORBELL_ARGUMENT},
        {DOORBELL_STEP_COPY, DOORBELL_STEP_STORES, 0, firsts, seconds, 0, 8, DOORBELL_ARGUMENT},
        {DOORBELL_STEP_COPY, DOORBELL_STEP_STORES, 0, downs, ups, 0, 8, DOORBELL_ARGUMENT},
        {DOORBELL_STEP_COPY, DOORBELL_STEP_STORES, 0, firsts, ups, 4, MOST, DOORBELL_OUTSIDE},
        /* Behind the launch. */
        {DOORBELL_STEP_COPY, DOORBELL_STEP_STORES, 0, firsts, ups, 0, 8, DOORBELL_GRAPH},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        doorbell_step_t step = copied(wrong[i].to, wrong[i].from, wrong[i].bytes, wrong[i].flags);
        step.kind = wrong[i].kind;
        step.graph = wrong[i].graph;
        step.from_offset = wrong[i].offset;
        doorbell_step_t steps[] = {launched(graph), step};
        int code = doorbell_chain_create(doorbell, steps, 2, sizeof(doorbell_step_t), 0, &none);
        if (code != wrong[i].wanted)
            fprintf(stderr, "step %zu: ", i);
        EXPECT(code, wrong[i].wanted);
    }
    EXPECT(doorbell_graph_free(doorbell, chain), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
}

/* Bytes that the CPU stores: while the last launch is not over, another is refused and stores nothing; others' launches and tickets go on. */
static void stored(void)
{
    enum { BIG = 2 * MOST };
    static uint8_t was[64];
    doorbell_graph_t graph = graph_of(64), chain, alone, none;
    doorbell_buffer_t host, video;
    doorbell_ticket_t held, ticket, other;
    void *words, *unseen;
    EXPECT(doorbell_buffer_create(doorbell, DOORBELL_HOST, BIG, &host, &words), DOORBELL_OK);
    EXPECT(doorbell_buffer_create(doorbell, DOORBELL_VIDEO, BIG, &video, &unseen), DOORBELL_OK);
    doorbell_step_t steps[] = {copied(firsts, ups, 64, DOORBELL_STEP_STORES), launched(graph), copied(downs, seconds, 64, 0)};
    EXPECT(doorbell_chain_create(doorbell, steps, 3, sizeof(doorbell_step_t), DOORBELL_CHAIN_BESIDE, &chain), DOORBELL_OK);
    EXPECT(doorbell_chain_create(doorbell, steps, 3, sizeof(doorbell_step_t), 0, &alone), DOORBELL_OK);
    doorbell_step_t big[] = {copied(video, host, MOST + 4, DOORBELL_STEP_STORES), launched(graph)}, nested[] = {launched(chain)};
    EXPECT(doorbell_chain_create(doorbell, big, 2, sizeof(doorbell_step_t), 0, &none), DOORBELL_GRAPH);
    EXPECT(doorbell_chain_create(doorbell, nested, 1, sizeof(doorbell_step_t), 0, &none), DOORBELL_GRAPH);
    for (uint32_t n = 0; n < 40; n++) {
        /* Something that waits for a word, and a launch behind it. */
        doorbell_graph_t one = n % 2 ? alone : chain, two = n % 2 ? chain : alone;
        doorbell_piece_t piece = {video, 0, host, 64, 64};
        word_t word = {host, 0, n + 1};
        fill(n, 64);
        memcpy(was, up, 64);
        EXPECT(doorbell_copy_batch_async(doorbell, &piece, 1, sizeof(doorbell_piece_t), WORDS(word, no_word), &held), DOORBELL_OK);
        EXPECT(doorbell_graph_launch(doorbell, one, AFTER(held), &ticket), DOORBELL_OK);
        memset(up, 0xaa, 64);
        EXPECT(doorbell_graph_launch(doorbell, one, NULL, &other), DOORBELL_FULL);
        EXPECT(doorbell_graph_launch(doorbell, one, AFTER(held), &other), DOORBELL_FULL);
        EXPECT(doorbell_graph_launch(doorbell, one, AFTER_STREAM(stream), &other), DOORBELL_FULL);
        EXPECT(doorbell_copy(doorbell, host, 128, firsts, 0, 64, PATIENCE), DOORBELL_OK);
        IS(memcmp((uint8_t *)words + 128, was, 64), 0);
        bool done = true;
        EXPECT(doorbell_poll(doorbell, ticket, &done), DOORBELL_OK);
        IS(done, 0);
        /* A stream waits for it, too. */
        EXPECT(doorbell_stream_wait(doorbell, stream, ticket), DOORBELL_OK);
        __atomic_store_n((uint32_t *)words, n + 1, __ATOMIC_SEQ_CST);
        if (n % 3)
            EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
        else
            EXPECT(cuStreamSynchronize(stream), 0);
        memcpy(up, was, 64);
        IS(right(64), 1);
        /* At once, and the other one, which reads the same bytes. */
        fill(n + 100, 64);
        int code = doorbell_graph_launch(doorbell, one, NULL, &ticket);
        if (n % 3)
            IS(code, DOORBELL_OK);
        while (code == DOORBELL_FULL)
            code = doorbell_graph_launch(doorbell, one, NULL, &ticket);
        EXPECT(code, DOORBELL_OK);
        EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
        IS(right(64), 1);
        EXPECT(doorbell_graph_launch(doorbell, two, AFTER(ticket), &ticket), DOORBELL_OK);
        EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
        IS(right(64), 1);
    }
    /* Into doorbell's own memory, which stays for the chain, with the kernel's pointer moved there. */
    doorbell_step_t own[] = {copied(video, ups, 64, DOORBELL_STEP_STORES), launched(graph), copied(downs, seconds, 64, 0)};
    EXPECT(doorbell_graph_free(doorbell, chain), DOORBELL_OK);
    EXPECT(doorbell_chain_create(doorbell, own, 3, sizeof(doorbell_step_t), DOORBELL_CHAIN_BESIDE, &chain), DOORBELL_OK);
    EXPECT(doorbell_graph_set_pointer(doorbell, chain, 0, 8, video, 0), DOORBELL_OK);
    EXPECT(doorbell_buffer_free(doorbell, video), DOORBELL_OK);
    for (uint32_t n = 0; n < 20; n++) {
        fill(n, 64);
        EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_OK);
        EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
        IS(right(64), 1);
    }
    EXPECT(doorbell_graph_free(doorbell, chain), DOORBELL_OK);
    EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_HANDLE);
    EXPECT(doorbell_graph_free(doorbell, alone), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
    EXPECT(doorbell_buffer_free(doorbell, host), DOORBELL_OK);
}

/* The kernel of a chain stores where nothing is: what waits for the copies behind it hears of it. Nothing is launched after this. */
static void killed(void)
{
    doorbell_graph_t graph = graph_of(64), chain;
    doorbell_step_t steps[] = {copied(firsts, ups, 64, DOORBELL_STEP_STORES), launched(graph), copied(downs, seconds, 64, 0)};
    doorbell_ticket_t ticket;
    uint64_t nowhere = UINT64_C(0x123456789000);
    EXPECT(doorbell_chain_create(doorbell, steps, 3, sizeof(doorbell_step_t), DOORBELL_CHAIN_BESIDE, &chain), DOORBELL_OK);
    EXPECT(doorbell_graph_set_param(doorbell, chain, 1, 0, &nowhere, 8), DOORBELL_OK);
    EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_KILLED);
    EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_KILLED);
    EXPECT(doorbell_graph_free(doorbell, chain), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
}

/* CUDA frees what the CPU stores into. */
static void freed_under_stores(void)
{
    doorbell_graph_t graph = graph_of(64), chain;
    doorbell_buffer_t gone;
    doorbell_ticket_t ticket;
    address_t memory;
    EXPECT(cuMemAlloc(&memory, MOST), 0);
    EXPECT(doorbell_buffer_register(doorbell, (void *)(uintptr_t)memory, MOST, &gone), DOORBELL_OK);
    doorbell_step_t steps[] = {copied(gone, ups, 64, DOORBELL_STEP_STORES), launched(graph), copied(downs, seconds, 64, 0)};
    EXPECT(doorbell_chain_create(doorbell, steps, 3, sizeof(doorbell_step_t), DOORBELL_CHAIN_BESIDE, &chain), DOORBELL_OK);
    EXPECT(doorbell_graph_set_param(doorbell, chain, 0, 8, &memory, 8), DOORBELL_OK);
    fill(5, 64);
    EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
    IS(right(64), 1);
    EXPECT(cuMemFree(memory), 0);
    EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_FREED);
    EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_FREED);
    EXPECT(doorbell_buffer_free(doorbell, gone), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, chain), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
}

/* Memory of CUDA's that is freed ends a chain; memory of doorbell's stays for it. */
static void freed(void)
{
    doorbell_graph_t graph = graph_of(64), chain, other;
    doorbell_buffer_t gone, own;
    doorbell_ticket_t ticket;
    void *pointer, *mine;
    EXPECT(cuMemHostAlloc(&pointer, MOST, 0), 0);
    EXPECT(doorbell_buffer_register(doorbell, pointer, MOST, &gone), DOORBELL_OK);
    EXPECT(doorbell_buffer_create(doorbell, DOORBELL_HOST, 4096, &own, &mine), DOORBELL_OK);
    for (int flags = 1; flags <= 2; flags++) {
        doorbell_step_t steps[] = {copied(firsts, gone, 64, (uint32_t)flags), launched(graph), copied(downs, seconds, 64, 0)};
        EXPECT(doorbell_chain_create(doorbell, steps, 3, sizeof(doorbell_step_t), 0, flags == 1 ? &chain : &other), DOORBELL_OK);
    }
    doorbell_step_t steps[] = {copied(firsts, own, 64, 0), launched(graph), copied(downs, seconds, 64, 0)};
    doorbell_graph_t stays;
    EXPECT(doorbell_chain_create(doorbell, steps, 3, sizeof(doorbell_step_t), 0, &stays), DOORBELL_OK);
    EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_buffer_free(doorbell, gone), DOORBELL_OK);
    EXPECT(doorbell_graph_launch(doorbell, other, NULL, &ticket), DOORBELL_OK);
    EXPECT(cuMemFreeHost(pointer), 0);
    EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_FREED);
    EXPECT(doorbell_graph_launch(doorbell, other, NULL, &ticket), DOORBELL_FREED);
    EXPECT(doorbell_buffer_free(doorbell, own), DOORBELL_OK);
    fill(3, 64);
    memcpy(mine, up, 64);
    EXPECT(doorbell_graph_launch(doorbell, stays, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
    IS(right(64), 1);
    EXPECT(doorbell_graph_free(doorbell, chain), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, other), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, stays), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, graph), DOORBELL_OK);
}

/* A copy waits for one whose lane is stopped, and a stream waits for it. No thread of the program waits for it: it cannot, it waits for the stream. */
static void a_stream_behind_a_stopped_lane(void)
{
    doorbell_ticket_t held, behind;
    doorbell_buffer_t gone;
    address_t memory;
    EXPECT(cuMemAlloc(&memory, 4096), 0);
    EXPECT(doorbell_buffer_register(doorbell, (void *)(uintptr_t)memory, 4096, &gone), DOORBELL_OK);
    doorbell_piece_t in = {gone, 0, ups, 64, 64}, out = {downs, 0, firsts, 0, 64};
    word_t word = {ups, 0, 1};
    memset(up, 0, 4);
    EXPECT(doorbell_copy_batch_async(doorbell, &in, 1, sizeof in, WORDS(word, no_word), &held), DOORBELL_OK);
    EXPECT(doorbell_copy_batch_async(doorbell, &out, 1, sizeof out, AFTER(held), &behind), DOORBELL_OK);
    EXPECT(doorbell_stream_wait(doorbell, stream, behind), DOORBELL_OK);
    EXPECT(doorbell_buffer_free(doorbell, gone), DOORBELL_OK);
    EXPECT(cuStreamSynchronize(stream), 0);
    EXPECT(doorbell_wait(doorbell, behind, PATIENCE), DOORBELL_STOPPED);
    EXPECT(cuMemFree(memory), 0);
}

/* What is wrong with the memory for a result is an error before the result is taken. */
static void results_are_not_lost(doorbell_graph_t graph)
{
    doorbell_buffer_t in = 0, out = 0;
    doorbell_graph_t chain = 0;
    doorbell_loop_t loop = 0;
    doorbell_result_t result = {.size = sizeof result};
    uint64_t value, got = 0;
    bool there = false;
    EXPECT(doorbell_buffer_create(doorbell, DOORBELL_HOST, 4096, &in, NULL), DOORBELL_OK);
    EXPECT(doorbell_buffer_create(doorbell, DOORBELL_HOST, 4096, &out, NULL), DOORBELL_OK);
    doorbell_step_t steps[] = {launched(graph), copied(out, in, 8, 0)};
    EXPECT(doorbell_chain_create(doorbell, steps, 2, sizeof *steps, 0, &chain), DOORBELL_OK);
    doorbell_loop_options_t options = {.size = sizeof options, .chain = chain, .input = in, .input_bytes = 8, .output = out, .output_bytes = 8};
    EXPECT(doorbell_loop_create(doorbell, &options, &loop), DOORBELL_OK);
    for (uint64_t n = 0; n < 2; n++) {
        value = 70 + n;
        EXPECT(doorbell_loop_put(doorbell, loop, &value, sizeof value, n, 0, 0, NULL), DOORBELL_OK);
        EXPECT(doorbell_loop_wait(doorbell, loop, PATIENCE), DOORBELL_OK);
        EXPECT(doorbell_loop_next(doorbell, loop, NULL, &got, sizeof got, &there), DOORBELL_ARGUMENT);
        for (size_t size = 0; size < 3; size++) {
            result.size = ((size_t[]){0, 8, SIZE_MAX})[size];
            EXPECT(doorbell_loop_next(doorbell, loop, &result, &got, sizeof got, &there), DOORBELL_ARGUMENT);
        }
        result.size = sizeof result;
        EXPECT(doorbell_loop_next(doorbell, loop, &result, NULL, 8, &there), DOORBELL_ARGUMENT);
        EXPECT(doorbell_loop_next(doorbell, loop, &result, &got, sizeof got, NULL), DOORBELL_ARGUMENT);
        EXPECT(doorbell_loop_next(doorbell, loop, &result, &got, sizeof got, &there), DOORBELL_OK);
        IS(there && got == value && result.sequence == n, 1);
    }
    EXPECT(doorbell_loop_free(doorbell, loop), DOORBELL_OK);
    EXPECT(doorbell_graph_free(doorbell, chain), DOORBELL_OK);
    EXPECT(doorbell_buffer_free(doorbell, in), DOORBELL_OK);
    EXPECT(doorbell_buffer_free(doorbell, out), DOORBELL_OK);
}

static void begin_session(void)
{
    doorbell_options_t options = {.size = sizeof options, .kind = DOORBELL_BESIDE_CUDA, .lanes = 1, .profile = ""};
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_OK);
    ups = pinned(up, MOST);
    downs = pinned(down, 2 * MOST);
    firsts = pinned((void *)(uintptr_t)first, MOST);
    seconds = pinned((void *)(uintptr_t)second, MOST);
}

int main(void)
{
    doorbell_graph_t chain;
    doorbell_ticket_t ticket = 0;
    void *pointer;
    begin_beside_cuda("nothing to test");
    EXPECT(cuModuleLoadData(&module, ".version 6.0\n"), 0);
    EXPECT(cuStreamCreate(&stream, 1), 0);
    EXPECT(cuMemHostAlloc(&pointer, 4 * MOST, 0), 0);
    up = pointer;
    down = up + 2 * MOST;
    EXPECT(cuMemAlloc(&first, MOST), 0);
    EXPECT(cuMemAlloc(&second, MOST), 0);
    EXPECT(doorbell_chain_create(doorbell, NULL, 0, sizeof(doorbell_step_t), 0, &chain), DOORBELL_ARGUMENT); /* no session */
    begin_session();
    doorbell_step_t early = copied(firsts, ups, 8, 0);
    EXPECT(doorbell_chain_create(doorbell, &early, 1, sizeof(doorbell_step_t), 0, &chain), DOORBELL_ARGUMENT);
    every_size();
    queued();
    by_tickets();
    wrong_steps();
    freed();
    stored();
    freed_under_stores();
    doorbell_graph_t graph = graph_of(8), beside;
    results_are_not_lost(graph);
    doorbell_step_t steps[] = {copied(firsts, ups, 8, 0), launched(graph)};
    EXPECT(doorbell_chain_create(doorbell, steps, 2, sizeof(doorbell_step_t), 0, &chain), DOORBELL_OK);
    doorbell_step_t by_cpu[] = {copied(firsts, ups, 8, DOORBELL_STEP_STORES), launched(graph), copied(downs, seconds, 8, 0)};
    EXPECT(doorbell_chain_create(doorbell, by_cpu, 3, sizeof(doorbell_step_t), DOORBELL_CHAIN_BESIDE, &beside), DOORBELL_OK);
    EXPECT(doorbell_graph_launch(doorbell, beside, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_OK);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(doorbell_graph_launch(doorbell, beside, NULL, &ticket), DOORBELL_FORKED);
        EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_FORKED);
        EXPECT(doorbell_chain_create(doorbell, by_cpu, 3, sizeof(doorbell_step_t), DOORBELL_CHAIN_BESIDE, &beside), DOORBELL_FORKED);
        EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_FORKED);
        EXPECT(doorbell_graph_launch(doorbell, chain, AFTER(ticket), &ticket), DOORBELL_FORKED);
        EXPECT(doorbell_chain_create(doorbell, steps, 2, sizeof(doorbell_step_t), 0, &chain), DOORBELL_FORKED);
        _exit(failures != 0);
    }
    int status = 1;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    EXPECT(doorbell_graph_launch(doorbell, beside, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    EXPECT(doorbell_graph_launch(doorbell, chain, NULL, &ticket), DOORBELL_CLOSED);
    EXPECT(doorbell_graph_launch(doorbell, beside, NULL, &ticket), DOORBELL_CLOSED);
    EXPECT(doorbell_wait(doorbell, ticket, PATIENCE), DOORBELL_CLOSED);
    begin_session();
    a_stream_behind_a_stopped_lane();
    killed();
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    return failures ? 1 : 0;
}
