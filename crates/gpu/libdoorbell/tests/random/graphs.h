/* Of random.c: graphs, chains and loops. */
#ifndef RANDOM_GRAPHS_H
#define RANDOM_GRAPHS_H

#include "memory.h"


static address_t word_at(int gpu, int word) { return (address_t)(uintptr_t)&words[gpu][(size_t)word * STRIDE]; }
static uint32_t sum(const struct counted *c)
{
    return words[c->gpu][(size_t)c->word * STRIDE] + words[c->gpu][(size_t)(c->word + 1) * STRIDE];
}

static void check_count(struct counted *c)
{
    uint32_t least = atomic_load(&c->done), is = sum(c) - c->base, most = atomic_load(&c->attempted);
    if (is < least || is > most)
        complain("the count of %d kernels is %u, not %u to %u", c->kernels, is, least, most);
}

/* Two words that nothing else counts. They are never used again. */
static struct counted *a_count(struct session *s, doorbell_t *h)
{
    int place = atomic_fetch_add(&counted_used, 1);
    if (place >= WORDS / 2) {
        atomic_store(&counted_used, WORDS / 2);
        return NULL;
    }
    counted[place].of = h;
    counted[place].gpu = s->gpu;
    counted[place].word = 2 * place;
    return &counted[place];
}

static void free_counted(doorbell_t *h, struct counted *c)
{
    DOORBELL(graph_free, h, atomic_load(&c->graph));
    check_count(c);
}

static void put_graph(struct session *s, doorbell_t *h, struct counted *c, doorbell_graph_t graph)
{
    c->base = sum(c);
    atomic_store(&c->graph, graph);
    struct counted *was = atomic_exchange(&s->graphs[below(POOL)], c);
    if (was)
        free_counted(h, was);
}
static struct counted *a_graph(struct session *s) { return atomic_load(&(one_in(50) ? &sessions[below(session_count)] : s)->graphs[below(POOL)]); }

/* All kernels of a new copy get its own word. Otherwise it is freed. */
static int own_words(doorbell_t *h, struct counted *c, doorbell_graph_t graph)
{
    address_t word = word_at(c->gpu, c->word);
    size_t kernels = 0;
    int code = DOORBELL(graph_kernels, h, graph, NULL, 0, &kernels);
    for (uint32_t n = 0; n < kernels && code == DOORBELL_OK; n++)
        while ((code = DOORBELL(graph_set_param, h, graph, n, 0, &word, 8)) == DOORBELL_BUSY)
            sched_yield();
    c->kernels = (int)kernels;
    if (code != DOORBELL_OK)
        DOORBELL(graph_free, h, graph);
    return code == DOORBELL_OK;
}

/* CUDA launches it a few times here, so no other thread submits. */
static void prepare_graph(struct session *s, doorbell_t *h)
{
    static const uint32_t one[3] = {1, 1, 1};
    struct counted *c = a_count(s, h);
    if (!c || !me->streams[s->gpu])
        return;
    void *stream = me->streams[s->gpu], *graph = NULL, *exec = NULL;
    address_t word = word_at(s->gpu, c->word);
    void *arguments[] = {&word};
    doorbell_graph_t ours = 0;
    int way = (int)below(3), code = 1;
    c->kernels = 1;
    lock_submits(1);
    if (way < 2) {
        CUDA(cuStreamBeginCapture(stream, 1));
        CUDA(cuLaunchKernel(functions[s->gpu], 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
        CUDA(cuStreamEndCapture(stream, &graph));
        if (way == 0)
            CUDA(cuGraphInstantiate(&exec, graph, 0));
    }
    if (way == 0)
        code = DOORBELL(graph_create, h, exec, stream, &ours);
    else if (way == 1)
        code = DOORBELL(graph_instantiate, h, graph, stream, &ours);
    else
        code = DOORBELL(graph_create_kernel, h, functions[s->gpu], one, one, 0, arguments, stream, &ours);
    if (exec)
        CUDA(cuGraphExecDestroy(exec));
    if (graph)
        CUDA(cuGraphDestroy(graph));
    unlock_submits();
    if (code == DOORBELL_OK && ours)
        put_graph(s, h, c, ours);
}

static void copy_graph(struct session *s, doorbell_t *h)
{
    struct counted *of = a_graph(s), *c = of ? a_count(s, h) : NULL;
    doorbell_graph_t copy;
    if (!c)
        return;
    uint32_t lane = one_in(4) ? DOORBELL_OWN_LAUNCH_LANE : (uint32_t)below(one_in(20) ? 20 : 2);
    if (DOORBELL(graph_create_copy, h, atomic_load(&of->graph), lane, &copy) == DOORBELL_OK && own_words(h, c, copy))
        put_graph(s, h, c, copy);
}

static doorbell_step_t copy_step(doorbell_buffer_t to, uint64_t to_offset, doorbell_buffer_t from, uint64_t from_offset, uint64_t bytes, uint32_t flags)
{
    return (doorbell_step_t){.kind = DOORBELL_STEP_COPY, .flags = flags, .to = to, .to_offset = to_offset, .from = from, .from_offset = from_offset, .bytes = bytes};
}
static doorbell_step_t launch_step(struct counted *c)
{
    return (doorbell_step_t){.kind = DOORBELL_STEP_LAUNCH, .graph = c ? atomic_load(&c->graph) : next_random()};
}
static uint32_t chain_flags(void) { return (uint32_t)below(one_in(20) ? 32 : 16) & (one_in(20) ? 31u : 27u); }

/* Of any blocks and graphs: most of these are refused. */
static void a_chain(struct session *s, doorbell_t *h)
{
    doorbell_step_t steps[6];
    size_t count = 1 + below(5), n = 0;
    doorbell_graph_t chain;
    struct counted *c = a_count(s, h), *of = a_graph(s);
    if (!c)
        return;
    for (; n < count; n++)
        steps[n] = below(2) ? launch_step(below(8) ? of : a_graph(s))
                            : copy_step(a_buffer(s, 1), below(BYTES / 2), a_buffer(s, 1), below(BYTES / 2), 1 + below(one_in(2) ? 64 : BYTES / 2),
                                        one_in(10) ? 1u << below(5) : n == 0 ? 4 * (uint32_t)below(2) : 0);
    if (DOORBELL(chain_create, h, steps, count, one_in(50) ? below(100) : sizeof *steps, chain_flags(), &chain) == DOORBELL_OK && own_words(h, c, chain))
        put_graph(s, h, c, chain);
}

static int launch(struct session *s, doorbell_t *h, struct counted *c, doorbell_ticket_t *ticket, int with_order)
{
    struct order o = {.locked = 0};
    doorbell_order_t *order = with_order ? an_order(s, &o) : NULL;
    doorbell_graph_t graph = atomic_load(&c->graph);
    atomic_fetch_add(&c->attempted, c->kernels);
    int code = order ? DO(graph_launch_ordered, doorbell_graph_launch(h, graph, order, ticket)) : DOORBELL(graph_launch, h, graph, NULL, ticket);
    /* With a ticket it was submitted, and only the stream does not wait. */
    if (code != DOORBELL_OK && *ticket == 0)
        atomic_fetch_sub(&c->attempted, c->kernels);
    submitted(s, &o, code, *ticket);
    return code;
}

static void a_graph_call(struct session *s, doorbell_t *h)
{
    struct counted *c = a_graph(s);
    doorbell_ticket_t ticket = 0;
    uint32_t bytes[4];
    size_t kernels;
    uint64_t how = below(20);
    if (how == 0 || (!c && one_in(3))) {
        prepare_graph(s, h);
        return;
    }
    if (how == 1) {
        copy_graph(s, h);
        return;
    }
    if (how < 4) {
        a_chain(s, h);
        return;
    }
    if (!c)
        return;
    if (how == 4)
        free_counted(h, c);
    else if (how == 5)
        DOORBELL(graph_kernels, h, atomic_load(&c->graph), bytes, below(4), &kernels);
    else if (how < 9) {
        /* From one of its words to the other. Or what it has not. */
        address_t word = word_at(c->gpu, c->word + (int)below(2));
        int outside = one_in(10);
        DOORBELL(graph_set_param, h, atomic_load(&c->graph), outside ? 100 : (uint32_t)below(3), outside ? below(3) * 7 : 0, &word, outside ? below(200) : 8);
    } else if (launch(s, h, c, &ticket, 1) == DOORBELL_OK && below(2)) {
        uint64_t timeout = a_timeout();
        if (DO_IN(ms_of(timeout), wait, doorbell_wait(h, ticket, timeout)) == DOORBELL_OK)
            atomic_fetch_add(&c->done, c->kernels);
        check_count(c);
    }
}

/* A launch points into memory that CUDA then frees. */
static void a_freed_pointer(struct session *s, doorbell_t *h)
{
    struct counted *of = a_graph(s);
    doorbell_graph_t graph;
    doorbell_buffer_t buffer = 0;
    doorbell_ticket_t ticket = 0;
    address_t memory;
    if (!of || DOORBELL(graph_create_copy, h, atomic_load(&of->graph), DOORBELL_OWN_LAUNCH_LANE, &graph) != DOORBELL_OK)
        return;
    if (CUDA(cuMemAlloc(&memory, BYTES)) != 0)
        return;
    if (DOORBELL(buffer_register, h, (void *)(uintptr_t)memory, BYTES, &buffer) == DOORBELL_OK
        && DOORBELL(graph_set_pointer, h, graph, 0, one_in(20) ? 4 : 0, buffer, one_in(20) ? BYTES : 4 * below(BYTES / 4)) == DOORBELL_OK) {
        for (uint64_t n = below(4); n > 0; n--)
            if (DOORBELL(graph_launch, h, graph, NULL, &ticket) == DOORBELL_OK)
                put_ticket(s, ticket);
        DO(cuda_free, cuMemFree(memory));
        memory = 0;
        int code = DOORBELL(graph_launch, h, graph, NULL, &ticket);
        if (code == DOORBELL_OK)
            complain("a launch that points to freed memory");
    }
    if (buffer)
        DOORBELL(buffer_free, h, buffer);
    DOORBELL(graph_free, h, graph);
    if (memory)
        DO(cuda_free, cuMemFree(memory));
}

#endif
