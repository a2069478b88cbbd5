/* Random calls with faults: many threads, several sessions, and memory, objects and sessions that end while they are used.
 *
 *   random SECONDS [SEED [THREADS, 8]]
 *
 * Each GPU (up to two) has two sessions. Faults: CUDA frees memory that copies and launches name, objects and sessions are freed while other threads
 * use them, handles are stale or of another session, arguments are wrong, lanes are stopped, the process forks, threads end. No kernel and no copy
 * gets a wrong address, and memory that only kernels name stays: doorbell promises nothing for these.
 *
 * Checked: the bytes of copies that were waited for; the counts of launches; memory that was unpinned or freed does not change after that; each code
 * is one that doorbell.h lists for the call; no channel is killed; no call takes longer than doorbell.h states, plus RANDOM_LIMIT_MS (1,000).
 * A seed gives each thread the same choices each time. Prints a line for each kind of call.
 *
 * Exit status 0: all as stated; 1: otherwise; 77: no CUDA. A call that does not return ends the program with SIGABRT. */
#define _GNU_SOURCE
#include <doorbell.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long address_t;
/* STRIDE: words that several lanes count at the same time are not in one line. */
enum { GPUS = 2, EACH = 2, BLOCKS = 8, POOL = 12, TICKETS = 64, BYTES = 65536, WORDS = 1 << 17, STRIDE = 16, MOST_THREADS = 64, GUARD = 64 };
#define FOREVER_MS 25000
#define MS UINT64_C(1000000)

static int (*cu_init)(unsigned), (*cu_devices)(int *), (*cu_device)(int *, int), (*cu_retain)(void **, int), (*cu_set)(void *);
static int (*cu_alloc)(address_t *, size_t), (*cu_free)(address_t), (*cu_host_alloc)(void **, size_t, unsigned), (*cu_host_free)(void *);
static int (*cu_register)(void *, size_t, unsigned), (*cu_unregister)(void *), (*cu_to_gpu)(address_t, const void *, size_t);
static int (*cu_from_gpu)(void *, address_t, size_t), (*cu_stream)(void **, unsigned), (*cu_stream_destroy)(void *), (*cu_synchronize)(void *);
static int (*cu_event)(void **, unsigned), (*cu_record)(void *, void *), (*cu_load)(void **, const void *), (*cu_unload)(void *);
static int (*cu_function)(void **, void *, const char *), (*cu_begin)(void *, int), (*cu_end)(void *, void **);
static int (*cu_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*cu_instantiate)(void **, void *, unsigned long long), (*cu_exec_destroy)(void *), (*cu_graph_destroy)(void *);
static int (*cu_fill)(address_t, unsigned, size_t, void *);

static const char PTX[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry add1(.param .u64 word)\n{\n    .reg .b64 %word;\n    ld.param.u64 %word, [word];\n"
                          "    red.global.add.u32 [%word], 1;\n    ret;\n}\n";

/* The codes of each call besides OK, as doorbell.h lists them, and the milliseconds that it may take by itself. LAUNCHES: for pending launches. OTHERS:
 * for another thread's call that waits for launches. */
#define LAUNCHES 10000
#define OTHERS 11000
#define B(code) (UINT32_C(1) << DOORBELL_##code)
#define ENDED (B(HANDLE) | B(CLOSED))
#define DEAD (B(KILLED) | B(STOPPED))
#define SUBMIT (B(BUSY) | B(LIMIT) | B(FULL) | B(OUTSIDE) | B(FREED) | B(ARGUMENT) | B(CUDA) | B(UNAVAILABLE) | ENDED | DEAD)
#define PREPARE (B(OUTSIDE) | B(FREED) | B(ARGUMENT) | B(LIMIT) | B(DRIVER) | ENDED)
#define GRAPHS (B(GRAPH) | DEAD | B(TIMEOUT) | B(UNAVAILABLE) | B(CUDA) | B(LIMIT) | B(DRIVER) | B(CLOSED))
#define CALLS(X)                                                                                                                          \
    X(create, B(UNAVAILABLE) | B(ARGUMENT) | B(LIMIT) | B(DRIVER) | B(CUDA), 0) X(free, ENDED, 10000)                                      \
    X(buffer_register, B(NOT_PINNABLE) | B(UNAVAILABLE) | B(LIMIT) | B(ARGUMENT) | B(CLOSED), 0)                                           \
    X(buffer_create, B(DRIVER) | B(LIMIT) | B(ARGUMENT) | B(CLOSED), 0) X(buffer_get, ENDED, 0) X(buffer_free, ENDED, 2000)                         \
    X(copy, (SUBMIT & ~(B(BUSY) | B(FULL) | B(LIMIT) | B(CUDA) | B(UNAVAILABLE))) | B(TIMEOUT), 0)                                                    \
    X(copy_async, SUBMIT, 0) X(copy_batch_async, SUBMIT, 0) X(copy_explain, ENDED | B(ARGUMENT), 0)                             \
    X(transfer_create, PREPARE, 0) X(transfer_create_bytes, PREPARE, 0) X(transfer_async, SUBMIT, 0) X(transfer_bytes_async, SUBMIT, 0)    \
    X(transfer_free, ENDED, 0) X(wait, ENDED | DEAD | B(TIMEOUT), 0) X(wait_sleeping, ENDED | DEAD | B(TIMEOUT), 0)                        \
    X(wait_any, ENDED | DEAD | B(TIMEOUT) | B(ARGUMENT), 0) X(wait_all, ENDED | DEAD | B(TIMEOUT) | B(ARGUMENT), 0)                        \
    X(poll, ENDED | DEAD, 0) X(pending, ENDED | DEAD, 0) X(stream_wait, SUBMIT, 0)                                                         \
    X(queue_create, B(ARGUMENT) | B(LIMIT), 0) X(queue_add, B(FULL) | B(UNAVAILABLE) | ENDED, 0) X(queue_poll, B(HANDLE) | B(ARGUMENT), 0) \
    X(queue_wait, ENDED | B(TIMEOUT), 0) X(queue_remove, B(HANDLE), 0) X(queue_descriptor, ENDED | B(UNAVAILABLE), 0)                      \
    X(queue_free, B(HANDLE), 0) X(ring_create, PREPARE, 0)                                                                                 \
    X(ring_next, B(OVERRUN) | B(BUSY) | B(ARGUMENT) | ENDED | DEAD, 0) X(ring_async, SUBMIT, 0) X(ring_free, ENDED, 0)                     \
    X(message_create, PREPARE, 0) X(message_send, B(BUSY) | B(FULL) | B(ARGUMENT) | B(FREED) | ENDED, 0)                                   \
    X(message_wait, B(TIMEOUT) | B(FREED) | ENDED, 0) X(message_free, ENDED, 0)                                                            \
    X(graph_create, GRAPHS, 10000) X(graph_instantiate, GRAPHS, 10000) X(graph_create_kernel, GRAPHS | B(ARGUMENT), 10000)                             \
    X(learner_create, B(LIMIT) | B(CLOSED), 0) X(learner_launch, GRAPHS | B(HANDLE), 10000) X(learner_free, ENDED, 0)                          \
    X(graph_create_copy, GRAPHS | B(ARGUMENT) | B(FREED) | B(HANDLE), 10000) X(graph_kernels, ENDED | B(ARGUMENT), 2000)                          \
    X(graph_set_param, ENDED | B(BUSY) | B(OUTSIDE) | B(ARGUMENT), 0)                                                                      \
    X(graph_set_pointer, ENDED | B(OUTSIDE) | B(ARGUMENT) | B(FREED) | B(TIMEOUT), 10000)                                                  \
    X(graph_launch, ENDED | DEAD | B(BUSY) | B(FULL) | B(FREED), 0) X(graph_launch_ordered, SUBMIT, 0)                                     \
    X(graph_free, ENDED | B(TIMEOUT), 10000) X(chain_create, PREPARE | B(GRAPH) | B(TIMEOUT) | DEAD, 10000)                                                        \
    X(loop_create, ENDED | B(ARGUMENT) | B(UNAVAILABLE) | B(LIMIT), 0)                                                                     \
    X(loop_put, B(BUSY) | B(FULL) | B(UNAVAILABLE) | B(ARGUMENT) | ENDED | B(FREED) | B(STOPPED), 0)                                       \
    X(loop_next, B(BUSY) | B(HANDLE) | B(ARGUMENT), 0) X(loop_wait, B(BUSY) | B(TIMEOUT) | B(HANDLE), 0)                                   \
    X(loop_descriptor, B(HANDLE), 0) X(loop_statistics, B(HANDLE) | B(ARGUMENT), 0) X(loop_stop, B(HANDLE), 0) X(loop_free, B(HANDLE), 0)  \
    X(cuda_free, 0, 10000) X(cuda, 0, 2000) X(cuda_synchronize, 0, FOREVER_MS) X(forked, 0, 0) X(waits_for_close, 0, FOREVER_MS)              \
    X(waits_for_lock, 0, FOREVER_MS)
enum {
#define X(name, codes, ms) K_##name,
    CALLS(X) KINDS
#undef X
};
static const struct { const char *name; uint32_t codes, ms; } calls[KINDS] = {
#define X(name, codes, ms) {#name, (codes) | 1, ms},
    CALLS(X)
#undef X
};
static atomic_ulong counts[KINDS][32];
static _Atomic uint64_t longest[KINDS];
static uint64_t limit = 1000 * MS, until;
static atomic_int wrong;

enum kind { BUFFER, TRANSFER, BYTES_TRANSFER, RING, QUEUE, LOOP, MESSAGE, POOLS };

/* A graph or a chain. Its launches add to two words: `attempted` is counted before a launch, `done` after a wait for it. */
struct counted {
    _Atomic doorbell_graph_t graph;
    doorbell_t *of;
    int gpu, word, kernels;
    uint32_t base;
    atomic_uint attempted, done;
};

struct session {
    int gpu, number;
    doorbell_t *_Atomic handle;
    pthread_mutex_t closing;
    atomic_int dead;
    uint64_t ends;
    _Atomic uint64_t pool[POOLS][POOL], tickets[TICKETS];
    struct counted *_Atomic graphs[POOL];
};

/* CUDA's memory, which any thread may copy, and which ends and begins again. */
enum memory { DEVICE, PINNED, REGISTERED };
struct block {
    pthread_mutex_t lock;
    enum memory memory;
    uint8_t *at;
    uint64_t pattern;
    /* No session has it registered, so its bytes must not change. */
    int quiet, unregistered;
    /* A chain or a parameter may name it: these keep it after doorbell_buffer_free(). */
    atomic_int kept;
    _Atomic doorbell_buffer_t handles[EACH];
};

/* What a thread has registered in a session, for copies whose bytes it checks. */
struct own { doorbell_t *of; doorbell_buffer_t host, device, middle[2]; };
struct thread {
    pthread_t id;
    uint64_t random;
    int number, gpu;
    atomic_int call;
    /* When the word is written that a held copy of this thread waits for. */
    _Atomic uint64_t since, release_at;
    volatile uint32_t *_Atomic release_word;
    void *streams[GPUS], *events[GPUS];
    uint8_t *host[GPUS];
    address_t device[GPUS];
    struct own own[GPUS * EACH];
    /* How the copies of a round trip were made, and waited for. */
    int by[4];
};

static struct session sessions[GPUS * EACH];
static struct block blocks[GPUS][BLOCKS];
static struct thread threads[2 * MOST_THREADS + 2];
static struct counted *counted;
static atomic_int counted_used;
static volatile uint32_t *words[GPUS];
static void *contexts[GPUS], *functions[GPUS];
static int gpus, session_count, thread_count = 8;
static __thread struct thread *me;
/* While doorbell has CUDA launch a graph, no other thread may submit with CUDA. */
static pthread_rwlock_t submits;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t next_random(void)
{
    me->random ^= me->random << 13;
    me->random ^= me->random >> 7;
    me->random ^= me->random << 17;
    return me->random * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}
static uint64_t below(uint64_t n) { return next_random() % n; }
static int one_in(uint64_t n) { return below(n) == 0; }

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
    va_list arguments;
    if (atomic_fetch_add(&wrong, 1) >= 40)
        return;
    char text[600];
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "thread %d: %s\n", me ? me->number : -1, text);
}

static void begin_call(int kind)
{
    atomic_store(&me->call, kind);
    atomic_store(&me->since, now());
}

static int end_call(int kind, int code, uint64_t more_ms)
{
    uint64_t took = now() - atomic_load(&me->since), was = atomic_load(&longest[kind]);
    atomic_store(&me->since, 0);
    while (took > was && !atomic_compare_exchange_weak(&longest[kind], &was, took))
        ;
    int place = code < 0 || code > 31 ? 31 : code;
    atomic_fetch_add(&counts[kind][place], 1);
    if (!(calls[kind].codes >> place & 1) || code == DOORBELL_KILLED)
        complain("%s: code %d (%s)", calls[kind].name, code, kind < K_cuda_free ? doorbell_error_detail() : "");
    /* A close waits for calls, and for pending work. A call that finds this may wait for the close. */
    if (code == DOORBELL_CLOSED)
        more_ms += LAUNCHES + OTHERS;
    if (took > limit + (more_ms + calls[kind].ms) * MS)
        complain("%s took %llu ms, code %d", calls[kind].name, (unsigned long long)(took / MS), code);
    return code;
}
#define DO_IN(ms, kind, call) (begin_call(K_##kind), end_call(K_##kind, (call), (ms)))
#define DO(kind, call) DO_IN(0, kind, call)
#define DOORBELL(name, ...) DO(name, doorbell_##name(__VA_ARGS__))
#define CUDA(call) DO(cuda, call)

static void lock_submits(int alone)
{
    begin_call(K_waits_for_lock);
    alone ? pthread_rwlock_wrlock(&submits) : pthread_rwlock_rdlock(&submits);
    end_call(K_waits_for_lock, 0, 0);
}
static void unlock_submits(void) { pthread_rwlock_unlock(&submits); }

static void on_gpu(int gpu)
{
    if (me->gpu != gpu)
        cu_set(contexts[gpu]);
    me->gpu = gpu;
}

static uint8_t byte_of(uint64_t pattern, size_t at) { return (uint8_t)(pattern * 31 + at * 13 + (at >> 8) * 7); }
static void write_pattern(uint8_t *to, size_t bytes, uint64_t pattern)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = byte_of(pattern, i);
}
static void compare(const uint8_t *is, size_t bytes, uint64_t pattern, const char *what)
{
    for (size_t i = 0; i < bytes; i++)
        if (is[i] != byte_of(pattern, i)) {
            complain("%s: byte %zu of %zu is %02x, not %02x", what, i, bytes, is[i], byte_of(pattern, i));
            return;
        }
}

/* ---- handles that all threads share ---- */

static uint64_t pick(struct session *s, enum kind kind)
{
    uint64_t how = below(40);
    if (how == 0)
        return next_random();
    if (how == 1)
        kind = below(POOLS);
    if (how == 2)
        s = &sessions[below(session_count)];
    return atomic_load(&s->pool[kind][below(POOL)]);
}

static void free_handle(doorbell_t *h, enum kind kind, uint64_t handle)
{
    switch (kind) {
    case BUFFER: DOORBELL(buffer_free, h, handle); break;
    case TRANSFER: case BYTES_TRANSFER: DOORBELL(transfer_free, h, handle); break;
    case RING: DOORBELL(ring_free, h, handle); break;
    case QUEUE: DOORBELL(queue_free, h, handle); break;
    case LOOP: DOORBELL(loop_free, h, handle); break;
    default: DOORBELL(message_free, h, handle);
    }
}

/* The handle that was in its place is freed, whoever uses it. */
static void put(struct session *s, doorbell_t *h, enum kind kind, uint64_t handle)
{
    uint64_t was = atomic_exchange(&s->pool[kind][below(POOL)], handle);
    if (was)
        free_handle(h, kind, was);
}

static void put_ticket(struct session *s, uint64_t ticket) { atomic_store(&s->tickets[below(TICKETS)], ticket); }
static uint64_t a_ticket(struct session *s)
{
    return one_in(50) ? next_random() : atomic_load(&(one_in(50) ? &sessions[below(session_count)] : s)->tickets[below(TICKETS)]);
}

static doorbell_buffer_t a_block(struct session *s, int kept)
{
    struct block *b = &blocks[s->gpu][below(BLOCKS)];
    if (kept)
        atomic_store(&b->kept, 1);
    return atomic_load(&b->handles[s->number]);
}
static doorbell_buffer_t a_buffer(struct session *s, int kept) { return below(3) ? a_block(s, kept) : pick(s, BUFFER); }

static uint64_t a_timeout(void) { return one_in(30) ? DOORBELL_FOREVER : one_in(4) ? 0 : below(one_in(5) ? 50 * MS : 300000); }
static uint64_t ms_of(uint64_t timeout) { return timeout == DOORBELL_FOREVER ? FOREVER_MS : timeout / MS; }

struct order { doorbell_order_t order; doorbell_ticket_t tickets[65]; int locked; };
/* An order of any kind, or null; with a stream or an event CUDA submits. */
static doorbell_order_t *an_order(struct session *s, struct order *o)
{
    o->locked = 0;
    uint64_t how = below(20);
    if (how < 11)
        return NULL;
    o->order = doorbell_order();
    if (how < 15) {
        o->order.ticket_count = 1 + below(one_in(20) ? 65 : 3);
        for (uint32_t i = 0; i < o->order.ticket_count; i++)
            o->tickets[i] = atomic_load(&s->tickets[below(TICKETS)]);
        o->order.tickets = o->tickets;
    } else if (how < 19 && me->streams[s->gpu]) {
        lock_submits(0);
        o->locked = 1;
        if (how == 18) {
            CUDA(cu_record(me->events[s->gpu], me->streams[s->gpu]));
            o->order.event = me->events[s->gpu];
        } else {
            o->order.flags = how == 17 ? DOORBELL_ORDER_STREAM | DOORBELL_ORDER_STREAM_WAITS : DOORBELL_ORDER_STREAM;
            o->order.stream = me->streams[s->gpu];
        }
    } else if (one_in(3))
        o->order.flags = 1u << (2 + below(30));
    else if (one_in(2))
        o->order.size = below(200);
    return &o->order;
}
static void submitted(struct session *s, struct order *o, int code, doorbell_ticket_t ticket)
{
    if (o->locked)
        unlock_submits();
    if (code == DOORBELL_OK)
        put_ticket(s, ticket);
    if (code == DOORBELL_STOPPED || code == DOORBELL_KILLED)
        atomic_store(&s->dead, 1);
}

/* ---- memory that ends ---- */

static void begin_block(int gpu, struct block *b)
{
    void *at = NULL;
    address_t device = 0;
    int code;
    b->memory = below(3);
    if (b->memory == DEVICE) {
        code = CUDA(cu_alloc(&device, BYTES));
        at = (void *)(uintptr_t)device;
    } else if (b->memory == PINNED)
        code = CUDA(cu_host_alloc(&at, BYTES, 0));
    else {
        at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        /* Otherwise a write after a fork might get another page than the GPU's. */
        madvise(at, BYTES, MADV_DONTFORK);
        code = CUDA(cu_register(at, BYTES, 0));
    }
    if (code != 0)
        return;
    b->at = at;
    b->quiet = 1;
    b->unregistered = 0;
    b->pattern = next_random();
    if (b->memory != DEVICE) {
        write_pattern(at, BYTES, b->pattern);
        return;
    }
    uint8_t *bytes = malloc(BYTES);
    write_pattern(bytes, BYTES, b->pattern);
    lock_submits(0);
    CUDA(cu_to_gpu((address_t)(uintptr_t)b->at, bytes, BYTES));
    unlock_submits();
    free(bytes);
    (void)gpu;
}

static void check_quiet(struct block *b)
{
    if (b->memory != DEVICE) {
        compare(b->at, BYTES, b->pattern, b->unregistered ? "memory that CUDA unregistered" : "pinned memory that no session has");
        return;
    }
    uint8_t *bytes = malloc(BYTES);
    lock_submits(0);
    if (CUDA(cu_from_gpu(bytes, (address_t)(uintptr_t)b->at, BYTES)) == 0)
        compare(bytes, BYTES, b->pattern, "GPU memory that no session has");
    unlock_submits();
    free(bytes);
}

static void end_block(struct session *s, struct block *b)
{
    int safe = one_in(2);
    for (int n = 0; n < EACH && safe; n++) {
        struct session *other = &sessions[s->gpu * EACH + n];
        doorbell_buffer_t handle = atomic_exchange(&b->handles[n], 0);
        if (handle) {
            int code = DOORBELL(buffer_free, atomic_load(&other->handle), handle);
            /* HANDLE: of a session that is closed. While one is being closed its copies may be pending. */
            safe = code == DOORBELL_OK || code == DOORBELL_HANDLE;
        }
    }
    if (safe && !atomic_load(&b->kept) && b->memory != DEVICE) {
        b->quiet = 1;
        write_pattern(b->at, BYTES, b->pattern = next_random());
        return;
    }
    if (b->memory == DEVICE)
        DO(cuda_free, cu_free((address_t)(uintptr_t)b->at));
    else if (b->memory == PINNED)
        DO(cuda_free, cu_host_free(b->at));
    else {
        DO(cuda_free, cu_unregister(b->at));
        b->quiet = b->unregistered = 1;
        write_pattern(b->at, BYTES, b->pattern = next_random());
    }
    if (b->memory != REGISTERED)
        b->at = NULL;
    /* Handles of freed memory are used, too. */
    for (int n = 0; n < EACH; n++) {
        doorbell_buffer_t handle = atomic_exchange(&b->handles[n], 0);
        struct session *other = &sessions[s->gpu * EACH + n];
        if (handle)
            put(other, atomic_load(&other->handle), BUFFER, handle);
    }
}

static void change_block(struct session *s)
{
    struct block *b = &blocks[s->gpu][below(BLOCKS)];
    if (pthread_mutex_trylock(&b->lock) != 0)
        return;
    if (!b->at)
        begin_block(s->gpu, b);
    else if (b->quiet) {
        check_quiet(b);
        b->quiet = 0;
        atomic_store(&b->kept, 0);
        if (b->unregistered) {
            munmap(b->at, BYTES);
            b->at = NULL;
        }
        for (int n = 0; n < EACH && b->at; n++) {
            doorbell_buffer_t buffer = 0;
            if (one_in(4))
                continue;
            struct session *other = &sessions[s->gpu * EACH + n];
            if (DOORBELL(buffer_register, atomic_load(&other->handle), b->at, BYTES, &buffer) == DOORBELL_OK)
                atomic_store(&b->handles[n], buffer);
        }
    } else
        end_block(s, b);
    pthread_mutex_unlock(&b->lock);
}

/* ---- any call on any handle ---- */

static void a_copy(struct session *s, doorbell_t *h)
{
    doorbell_piece_t pieces[8];
    doorbell_ticket_t ticket = 0;
    struct order o = {.locked = 0};
    uint32_t way;
    char text[200];
    size_t count = 1 + below(8), size = one_in(60) ? below(100) : sizeof *pieces;
    for (size_t n = 0; n < 8; n++) {
        pieces[n] = (doorbell_piece_t){a_buffer(s, 0), below(BYTES / 2), a_buffer(s, 0), below(BYTES / 2), below(one_in(2) ? BYTES / 2 : 100)};
        if (one_in(40))
            pieces[n].bytes = below(2) ? next_random() : 0;
        if (one_in(40))
            pieces[n].to_offset = next_random();
    }
    doorbell_piece_t *p = pieces;
    uint64_t timeout = a_timeout();
    int code;
    switch (below(4)) {
    case 0:
        DO_IN(ms_of(timeout), copy, doorbell_copy(h, p->to, p->to_offset, p->from, p->from_offset, p->bytes, timeout));
        break;
    case 1:
        DOORBELL(copy_explain, h, p->to, p->from, p->bytes, one_in(2), &way, text, below(sizeof text));
        break;
    case 2: {
        doorbell_order_t *order = an_order(s, &o);
        code = DOORBELL(copy_async, h, p->to, p->to_offset, p->from, p->from_offset, p->bytes, order, &ticket);
        submitted(s, &o, code, ticket);
        break;
    }
    default: {
        doorbell_order_t *order = an_order(s, &o);
        code = DOORBELL(copy_batch_async, h, pieces, one_in(60) ? 5000 : count, size, order, &ticket);
        submitted(s, &o, code, ticket);
    }
    }
}

static void a_buffer_call(struct session *s, doorbell_t *h)
{
    doorbell_buffer_t buffer = 0;
    void *pointer;
    uint64_t length;
    switch (below(6)) {
    case 0: case 1:
        if (DOORBELL(buffer_create, h, below(one_in(30) ? 5 : 2), one_in(30) ? below(2) * (UINT64_C(1) << 40) : BYTES, &buffer, &pointer) == DOORBELL_OK)
            put(s, h, BUFFER, buffer);
        break;
    case 2:
        DOORBELL(buffer_get, h, a_buffer(s, 0), &pointer, &length);
        break;
    case 3:
        DOORBELL(buffer_free, h, pick(s, BUFFER));
        break;
    case 4:
        /* Nobody's memory, or another GPU's. */
        pointer = gpus > 1 && one_in(2) ? (void *)(uintptr_t)me->device[1 - s->gpu] : (void *)&sessions;
        if (pointer && DOORBELL(buffer_register, h, pointer, BYTES, &buffer) == DOORBELL_OK)
            complain("buffer_register took memory that is not this GPU's");
        break;
    default:
        DOORBELL(buffer_register, h, me->host[s->gpu], one_in(3) ? 0 : UINT64_C(1) << 40, &buffer);
    }
}

static void a_prepared_copy(struct session *s, doorbell_t *h)
{
    uint64_t handle = 0;
    doorbell_ticket_t ticket = 0;
    struct order o = {.locked = 0};
    doorbell_order_t *order;
    static const uint8_t bytes[BYTES];
    doorbell_frame_t frame = {.size = one_in(40) ? below(64) : sizeof frame};
    uint64_t length = one_in(30) ? next_random() : 1 + below(BYTES / 4);
    int code;
    switch (below(12)) {
    case 0:
        if (DOORBELL(transfer_create, h, a_buffer(s, 0), below(BYTES / 2), a_buffer(s, 0), below(BYTES / 2), length, &handle) == DOORBELL_OK)
            put(s, h, TRANSFER, handle);
        break;
    case 1:
        if (DOORBELL(transfer_create_bytes, h, a_buffer(s, 0), below(BYTES / 2), one_in(2) ? 64 : length, &handle) == DOORBELL_OK)
            put(s, h, BYTES_TRANSFER, handle);
        break;
    case 2:
        if (DOORBELL(ring_create, h, a_buffer(s, 0), 0, a_buffer(s, 0), 0, 1 + below(BYTES / 4), one_in(20) ? below(2000) : 2 + below(3), &handle) == DOORBELL_OK)
            put(s, h, RING, handle);
        break;
    case 3: case 4: case 5: case 6:
        order = an_order(s, &o);
        submitted(s, &o, code = DOORBELL(transfer_async, h, pick(s, TRANSFER), order, &ticket), ticket);
        break;
    case 7: case 8:
        order = an_order(s, &o);
        submitted(s, &o, code = DOORBELL(transfer_bytes_async, h, pick(s, BYTES_TRANSFER), bytes, one_in(2) ? 64 : below(BYTES), order, &ticket), ticket);
        break;
    case 9: case 10:
        handle = pick(s, RING);
        if (DOORBELL(ring_next, h, handle, &frame) != DOORBELL_OK && below(10))
            break;
        order = an_order(s, &o);
        submitted(s, &o, code = DOORBELL(ring_async, h, handle, order, &ticket), ticket);
        break;
    default: {
        enum kind kind = TRANSFER + below(3);
        free_handle(h, kind, pick(s, kind));
    }
    }
}

static void a_wait(struct session *s, doorbell_t *h)
{
    doorbell_ticket_t tickets[6];
    uint64_t timeout = a_timeout(), left;
    size_t count = one_in(30) ? 0 : 1 + below(6), index;
    bool done;
    int code = 0;
    for (size_t n = 0; n < 6; n++)
        tickets[n] = a_ticket(s);
    switch (below(8)) {
    case 0: code = DO_IN(ms_of(timeout), wait, doorbell_wait(h, tickets[0], timeout)); break;
    case 1: code = DO_IN(ms_of(timeout), wait_sleeping, doorbell_wait_sleeping(h, tickets[0], below(100000), timeout)); break;
    case 2: code = DO_IN(ms_of(timeout), wait_any, doorbell_wait_any(h, tickets, count, timeout, &index)); break;
    case 3: code = DO_IN(ms_of(timeout), wait_all, doorbell_wait_all(h, tickets, count, timeout)); break;
    case 4: case 5: code = DOORBELL(poll, h, tickets[0], &done); break;
    case 6: code = DOORBELL(pending, h, tickets[0], &left); break;
    default:
        if (!me->streams[s->gpu])
            break;
        lock_submits(0);
        code = DOORBELL(stream_wait, h, me->streams[s->gpu], tickets[0]);
        unlock_submits();
    }
    if (code == DOORBELL_STOPPED)
        atomic_store(&s->dead, 1);
}

static void a_queue_call(struct session *s, doorbell_t *h)
{
    doorbell_queue_t queue = pick(s, QUEUE);
    doorbell_done_t done[8];
    size_t count;
    int32_t descriptor;
    bool was_there;
    uint64_t timeout = below(one_in(5) ? 50 * MS : 300000);
    switch (below(10)) {
    case 0:
        if (DOORBELL(queue_create, h, one_in(20) ? below(2) * 100000 : 1 + below(100), &queue) == DOORBELL_OK)
            put(s, h, QUEUE, queue);
        break;
    case 1: case 2: case 3:
        DOORBELL(queue_add, h, queue, a_ticket(s), 5);
        break;
    case 4: case 5:
        if (one_in(50))
            DOORBELL(queue_poll, h, queue, done, 1, below(sizeof *done), &count);
        else if (DOORBELL(queue_poll, h, queue, done, below(8), sizeof *done, &count) == DOORBELL_OK)
            for (size_t n = 0; n < count; n++)
                if (done[n].user != 5 || (done[n].code != 0 && done[n].code != DOORBELL_STOPPED && done[n].code != DOORBELL_CLOSED))
                    complain("queue_poll: user %llu, code %d", (unsigned long long)done[n].user, done[n].code);
        break;
    case 6: DO_IN(ms_of(timeout), queue_wait, doorbell_queue_wait(h, queue, timeout)); break;
    case 7: DOORBELL(queue_remove, h, queue, a_ticket(s), &was_there); break;
    case 8:
        if (DOORBELL(queue_descriptor, h, queue, &descriptor) == DOORBELL_OK) {
            struct pollfd fd = {.fd = descriptor, .events = POLLIN};
            poll(&fd, 1, (int)below(10));
        }
        break;
    default:
        if (one_in(4))
            DOORBELL(queue_free, h, queue);
    }
}

static void a_message_call(struct session *s, doorbell_t *h)
{
    doorbell_message_t message = pick(s, MESSAGE);
    uint32_t number;
    uint8_t answer[DOORBELL_MESSAGE_BYTES];
    uint64_t timeout = below(MS);
    switch (below(5)) {
    case 0:
        for (int n = 0; n < 8; n++)
            if (DOORBELL(message_create, h, pick(s, BUFFER), below(4) * 64, pick(s, BUFFER), below(4) * 64, &message) == DOORBELL_OK) {
                put(s, h, MESSAGE, message);
                break;
            }
        break;
    case 1: case 2: DOORBELL(message_send, h, message, "message", one_in(20) ? below(200) : 7, &number); break;
    case 3: DO_IN(ms_of(timeout), message_wait, doorbell_message_wait(h, message, below(3), answer, timeout)); break;
    default: DOORBELL(message_free, h, message);
    }
}

/* ---- graphs, chains and loops ---- */

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
    doorbell_learner_t learner;
    bool launched;
    int way = (int)below(4), code = 1;
    uint32_t learnt = 0;
    c->kernels = 1;
    lock_submits(1);
    if (way < 3) {
        CUDA(cu_begin(stream, 1));
        CUDA(cu_launch(functions[s->gpu], 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
        CUDA(cu_end(stream, &graph));
        if (way != 1)
            CUDA(cu_instantiate(&exec, graph, 0));
    }
    if (way == 0)
        code = DOORBELL(graph_create, h, exec, stream, &ours);
    else if (way == 1)
        code = DOORBELL(graph_instantiate, h, graph, stream, &ours);
    else if (way == 3)
        code = DOORBELL(graph_create_kernel, h, functions[s->gpu], one, one, 0, arguments, stream, &ours);
    else if (DOORBELL(learner_create, h, exec, &learner) == DOORBELL_OK) {
        for (int n = 0; n < 10 && !ours; n++) {
            code = DOORBELL(learner_launch, h, learner, stream, &launched, &ours);
            learnt += code == DOORBELL_OK && launched;
            if (code != DOORBELL_OK)
                break;
            if (sum(c) != learnt)
                complain("a learner's launches: the count is %u, not %u", sum(c), learnt);
        }
        DOORBELL(learner_free, h, learner);
    }
    if (exec)
        CUDA(cu_exec_destroy(exec));
    if (graph)
        CUDA(cu_graph_destroy(graph));
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
    if (CUDA(cu_alloc(&memory, BYTES)) != 0)
        return;
    if (DOORBELL(buffer_register, h, (void *)(uintptr_t)memory, BYTES, &buffer) == DOORBELL_OK
        && DOORBELL(graph_set_pointer, h, graph, 0, one_in(20) ? 4 : 0, buffer, one_in(20) ? BYTES : 4 * below(BYTES / 4)) == DOORBELL_OK) {
        for (uint64_t n = below(4); n > 0; n--)
            if (DOORBELL(graph_launch, h, graph, NULL, &ticket) == DOORBELL_OK)
                put_ticket(s, ticket);
        DO(cuda_free, cu_free(memory));
        memory = 0;
        int code = DOORBELL(graph_launch, h, graph, NULL, &ticket);
        if (code == DOORBELL_OK)
            complain("a launch that points to freed memory");
    }
    if (buffer)
        DOORBELL(buffer_free, h, buffer);
    DOORBELL(graph_free, h, graph);
    if (memory)
        DO(cuda_free, cu_free(memory));
}

/* ---- copies whose bytes are checked ---- */

/* CLOSED comes before the session's copies have ended. They have when the next session is there. */
static void wait_for_close(struct session *s, doorbell_t *h)
{
    begin_call(K_waits_for_close);
    while (atomic_load(&s->handle) == h)
        usleep(100);
    end_call(K_waits_for_close, 0, 0);
}

/* Some copy did not end well: after this none writes to this thread's memory any more. */
static void give_up(struct session *s, struct own *own)
{
    doorbell_t *h = own->of;
    own->of = NULL;
    if (!h || atomic_load(&s->handle) != h)
        return;
    int codes[2] = {DOORBELL(buffer_free, h, own->host), DOORBELL(buffer_free, h, own->device)};
    for (int n = 0; n < 2; n++)
        if (own->middle[n])
            DOORBELL(buffer_free, h, own->middle[n]);
    if (codes[0] == DOORBELL_CLOSED || codes[1] == DOORBELL_CLOSED)
        wait_for_close(s, h);
    uint64_t pattern = next_random();
    write_pattern(me->host[s->gpu], 4 * BYTES, pattern);
    usleep((useconds_t)below(2000));
    compare(me->host[s->gpu], 4 * BYTES, pattern, "unpinned memory");
}

static struct own *registered(struct session *s, doorbell_t *h)
{
    struct own *own = &me->own[s - sessions];
    if (!me->host[s->gpu])
        return NULL;
    if (own->of == h)
        return own;
    give_up(s, own);
    memset(own, 0, sizeof *own);
    if (DOORBELL(buffer_register, h, me->host[s->gpu], 4 * BYTES, &own->host) != DOORBELL_OK)
        return NULL;
    if (DOORBELL(buffer_register, h, (void *)(uintptr_t)me->device[s->gpu], 2 * BYTES, &own->device) != DOORBELL_OK) {
        DOORBELL(buffer_free, h, own->host);
        return NULL;
    }
    for (int n = 0; n < 2; n++)
        if (DOORBELL(buffer_create, h, n ? DOORBELL_VIDEO : DOORBELL_HOST, 2 * BYTES, &own->middle[n], NULL) != DOORBELL_OK)
            own->middle[n] = 0;
    own->of = h;
    return own;
}

struct place { doorbell_buffer_t buffer; uint64_t offset; };

/* By one of the ways. A ticket of 0: it is done. `data`: the bytes in the program's memory, or null. */
static int copy_by(struct session *s, doorbell_t *h, struct place to, struct place from, uint64_t bytes, const uint8_t *data,
                   const doorbell_order_t *order, doorbell_ticket_t *ticket)
{
    uint64_t handle = 0, half = bytes / 2, timeout = a_timeout();
    doorbell_piece_t pieces[2] = {{to.buffer, to.offset, from.buffer, from.offset, half},
                                  {to.buffer, to.offset + half, from.buffer, from.offset + half, bytes - half}};
    doorbell_frame_t frame = {.size = sizeof frame};
    uint64_t way = below(6);
    int code = DOORBELL_BUSY, tries = 0;
    me->by[order != NULL || me->by[0] >= 0] = (int)way;
    *ticket = 0;
    if (way == 0 && !order)
        return DO_IN(ms_of(timeout), copy, doorbell_copy(h, to.buffer, to.offset, from.buffer, from.offset, bytes, timeout));
    if (way == 1)
        code = DOORBELL(transfer_create, h, to.buffer, to.offset, from.buffer, from.offset, bytes, &handle);
    else if (way == 2 && data)
        code = DOORBELL(transfer_create_bytes, h, to.buffer, to.offset, bytes, &handle);
    else if (way == 3)
        code = DOORBELL(ring_create, h, to.buffer, to.offset, from.buffer, from.offset, bytes, 2, &handle);
    if (handle == 0 && code != DOORBELL_BUSY)
        return code;
    do {
        if (way == 3 && (code = DOORBELL(ring_next, h, handle, &frame)) == DOORBELL_OK)
            code = DOORBELL(ring_async, h, handle, order, ticket);
        else if (way == 3)
            ;
        else if (handle && way == 1)
            code = DOORBELL(transfer_async, h, handle, order, ticket);
        else if (handle)
            code = DOORBELL(transfer_bytes_async, h, handle, data, bytes, order, ticket);
        else if (way == 4 && half > 0)
            code = DOORBELL(copy_batch_async, h, pieces, 2, sizeof *pieces, order, ticket);
        else
            code = DOORBELL(copy_async, h, to.buffer, to.offset, from.buffer, from.offset, bytes, order, ticket);
        if (code == DOORBELL_BUSY || code == DOORBELL_FULL)
            usleep(tries < 20 ? 0 : 200);
    } while ((code == DOORBELL_BUSY || code == DOORBELL_FULL) && tries++ < 1000);
    if (code == DOORBELL_OK)
        put_ticket(s, *ticket);
    /* What was submitted continues. */
    if (handle)
        way == 3 ? DOORBELL(ring_free, h, handle) : DOORBELL(transfer_free, h, handle);
    return code;
}

/* Until it is done or can never end. */
static int wait_by_any_way(struct session *s, doorbell_t *h, doorbell_ticket_t ticket)
{
    int code = DOORBELL_TIMEOUT;
    for (int tries = 0; code == DOORBELL_TIMEOUT; tries++) {
        uint64_t timeout = tries > 5 ? DOORBELL_FOREVER : a_timeout(), way = below(7);
        doorbell_ticket_t two[2] = {ticket, ticket};
        size_t index = 9;
        bool done = false;
        doorbell_queue_t queue;
        doorbell_done_t taken[2];
        me->by[2] = (int)way;
        if (way == 0)
            code = DO_IN(ms_of(timeout), wait, doorbell_wait(h, ticket, timeout));
        else if (way == 1)
            code = DO_IN(ms_of(timeout), wait_sleeping, doorbell_wait_sleeping(h, ticket, below(100000), timeout));
        else if (way == 2) {
            code = DO_IN(ms_of(timeout), wait_any, doorbell_wait_any(h, two, 2, timeout, &index));
            if (code == DOORBELL_OK && index > 1)
                complain("wait_any: index %zu", index);
        } else if (way == 3)
            code = DO_IN(ms_of(timeout), wait_all, doorbell_wait_all(h, two, 2, timeout));
        else if (way == 4) {
            code = DOORBELL(poll, h, ticket, &done);
            code = code == DOORBELL_OK && !done ? DOORBELL_TIMEOUT : code;
        } else if (way == 5 && me->streams[s->gpu]) {
            lock_submits(0);
            code = DOORBELL(stream_wait, h, me->streams[s->gpu], ticket);
            unlock_submits();
            if (code == DOORBELL_BUSY || code == DOORBELL_FULL)
                code = DOORBELL_TIMEOUT;
            else if (code == DOORBELL_OK) {
                DO(cuda_synchronize, cu_synchronize(me->streams[s->gpu]));
                code = DOORBELL(poll, h, ticket, &done);
                if (code == DOORBELL_OK && !done)
                    complain("a stream did not wait for a ticket");
            }
        } else if (way == 6 && DOORBELL(queue_create, h, 2, &queue) == DOORBELL_OK) {
            if ((code = DOORBELL(queue_add, h, queue, ticket, ticket + 1)) == DOORBELL_OK) {
                code = DO_IN(FOREVER_MS, queue_wait, doorbell_queue_wait(h, queue, DOORBELL_FOREVER));
                if (code == DOORBELL_OK && DOORBELL(queue_poll, h, queue, taken, 2, sizeof *taken, &index) == DOORBELL_OK) {
                    if (index != 1 || taken[0].ticket != ticket || taken[0].user != ticket + 1)
                        complain("queue_poll: %zu submissions", index);
                    code = taken[0].code;
                }
            }
            DOORBELL(queue_free, h, queue);
        }
    }
    return code;
}

/* To the GPU or doorbell's memory and back, perhaps between a graph's kernels. */
static void round_trip(struct session *s, doorbell_t *h)
{
    struct own *own = registered(s, h);
    if (!own)
        return;
    uint64_t bytes = 1 + below(one_in(3) ? 100 : BYTES / 4), pattern = next_random();
    uint8_t *from = me->host[s->gpu] + below(BYTES / 2), *back = me->host[s->gpu] + BYTES + GUARD + below(BYTES / 2);
    doorbell_buffer_t between = one_in(3) ? own->device : own->middle[below(2)];
    struct place middle = {between ? between : own->device, below(BYTES / 2)};
    struct place first = {own->host, (uint64_t)(from - me->host[s->gpu])}, last = {own->host, (uint64_t)(back - me->host[s->gpu])};
    doorbell_ticket_t up = 0, down = 0;
    struct counted *c = NULL;
    int code;
    me->by[0] = me->by[1] = me->by[2] = me->by[3] = -1;
    write_pattern(from, bytes, pattern);
    memset(back - GUARD, 0xee, bytes + 2 * GUARD);
    if (one_in(6) && a_graph(s) && (c = a_count(s, h))) {
        doorbell_step_t steps[] = {copy_step(middle.buffer, middle.offset, own->host, first.offset, bytes, (uint32_t)below(5) & ~3u), launch_step(a_graph(s)),
                                   copy_step(own->host, last.offset, middle.buffer, middle.offset, bytes, 0)};
        doorbell_graph_t chain = 0;
        uint32_t flags = chain_flags();
        if (DOORBELL(chain_create, h, steps, 3, sizeof *steps, flags, &chain) != DOORBELL_OK || !own_words(h, c, chain))
            return;
        me->by[3] = (int)(flags | steps[0].flags << 8);
        atomic_store(&c->graph, chain);
        while ((code = launch(s, h, c, &down, 0)) == DOORBELL_BUSY || code == DOORBELL_FULL)
            usleep(100);
        code = code == DOORBELL_OK ? wait_by_any_way(s, h, down) : code;
        if (code == DOORBELL_OK) {
            atomic_fetch_add(&c->done, c->kernels);
            check_count(c);
        }
        DOORBELL(graph_free, h, chain);
    } else {
        doorbell_order_t order;
        code = copy_by(s, h, middle, first, bytes, from, NULL, &up);
        int ordered = up && below(2);
        if (code == DOORBELL_OK && up && !ordered)
            code = wait_by_any_way(s, h, up);
        order = doorbell_after(&up, 1);
        if (code == DOORBELL_OK)
            code = copy_by(s, h, last, middle, bytes, NULL, ordered ? &order : NULL, &down);
        if (code == DOORBELL_OK && down)
            code = wait_by_any_way(s, h, down);
    }
    if (code != DOORBELL_OK) {
        if (code == DOORBELL_CLOSED)
            wait_for_close(s, h);
        else
            give_up(s, own);
        if (code == DOORBELL_STOPPED)
            atomic_store(&s->dead, 1);
        return;
    }
    {
        char what[200];
        snprintf(what, sizeof what, "a copy on session %ld (up by %d, ordered or down by %d, waited by %d, chain's flags %#x, tickets %llx and %llx)", (long)(s - sessions),
                 me->by[0], me->by[1], me->by[2], (unsigned)me->by[3], (unsigned long long)up, (unsigned long long)down);
        compare(back, bytes, pattern, what);
    }
    for (int n = 0; n < GUARD; n++)
        if (back[n - GUARD] != 0xee || back[bytes + (uint64_t)n] != 0xee)
            complain("a copy of %llu bytes wrote outside", (unsigned long long)bytes);
}

/* A copy that waits for a word, and what is ordered after it. Sometimes its memory is freed meanwhile: then its lane is stopped. */
static void held_copy(struct session *s, doorbell_t *h)
{
    struct own *own = registered(s, h);
    if (!own)
        return;
    int end = one_in(25) ? 1 + (int)below(2) : 0, code;
    volatile uint32_t *word = (volatile uint32_t *)(me->host[s->gpu] + 3 * BYTES);
    void *memory = NULL;
    doorbell_buffer_t buffer = 0;
    doorbell_ticket_t held = 0, behind = 0;
    uint64_t pattern = next_random();
    if (CUDA(cu_host_alloc(&memory, 4096, 0)) != 0)
        return;
    write_pattern(memory, 4096, pattern);
    *word = 0;
    doorbell_order_t order = doorbell_order();
    order.wait_buffer = own->host;
    order.wait_offset = 3 * BYTES;
    order.wait_value = 1;
    if (DOORBELL(buffer_register, h, memory, 4096, &buffer) == DOORBELL_OK) {
        doorbell_piece_t piece = {buffer, 0, own->device, 0, 2048};
        doorbell_order_t after = doorbell_after(&held, 1);
        code = DOORBELL(copy_batch_async, h, &piece, 1, sizeof piece, &order, &held);
        if (code == DOORBELL_OK) {
            put_ticket(s, held);
            if (DOORBELL(copy_async, h, own->device, BYTES, own->host, 0, 64, &after, &behind) == DOORBELL_OK)
                put_ticket(s, behind);
            struct counted *c = a_graph(s);
            if (c && one_in(2)) {
                doorbell_graph_t graph = atomic_load(&c->graph);
                atomic_fetch_add(&c->attempted, c->kernels);
                if (DO(graph_launch_ordered, doorbell_graph_launch(h, graph, &after, &behind)) == DOORBELL_OK)
                    put_ticket(s, behind);
                else
                    atomic_fetch_sub(&c->attempted, c->kernels);
            }
            code = DO_IN(3, wait, doorbell_wait(h, held, below(3 * MS)));
            if (code == DOORBELL_OK)
                complain("a copy did not wait for its word");
            write_pattern(memory, 4096, pattern);
            if (end == 1 && DOORBELL(buffer_free, h, buffer) == DOORBELL_OK)
                buffer = 0;
            else if (end == 2) {
                /* It waits for launches first, which may be ordered after this copy. */
                atomic_store(&me->release_word, word);
                atomic_store(&me->release_at, now() + 1500 * MS);
                DO(cuda_free, cu_host_free(memory));
                memory = NULL;
            }
            if (end)
                atomic_store(&s->dead, 1);
        }
        atomic_store(&me->release_at, 0);
        *word = 1;
        code = code == DOORBELL_OK || code == DOORBELL_TIMEOUT ? wait_by_any_way(s, h, held) : code;
        /* Launches that wait for a stopped lane end when a thread waits for them. Until then all frees of CUDA wait for them, up to 10 s. */
        for (int n = 0; n < TICKETS && end; n++)
            DO_IN(2, wait, doorbell_wait(h, atomic_load(&s->tickets[n]), 2 * MS));
        if (end == 1 && buffer == 0) {
            usleep((useconds_t)below(2000));
            compare(memory, 4096, pattern, "memory that was unpinned under a held copy");
        }
        if (end || code != DOORBELL_OK) {
            if (code == DOORBELL_CLOSED)
                wait_for_close(s, h);
            give_up(s, own);
        }
        if (buffer)
            DOORBELL(buffer_free, h, buffer);
    }
    *word = 1;
    if (memory)
        DO(cuda_free, cu_host_free(memory));
}

/* A loop of a few frames. Other threads may ask for its statistics, stop it or free it. */
static void a_loop(struct session *s, doorbell_t *h)
{
    doorbell_buffer_t in = 0, out = 0, video = 0;
    doorbell_graph_t chain = 0;
    doorbell_loop_t loop = 0;
    doorbell_loop_options_t options = {.size = sizeof options};
    struct counted *c = a_count(s, h);
    uint32_t data[64], back[64];
    if (c && DOORBELL(buffer_create, h, DOORBELL_HOST, BYTES, &in, NULL) == DOORBELL_OK && DOORBELL(buffer_create, h, DOORBELL_HOST, BYTES, &out, NULL) == DOORBELL_OK
        && DOORBELL(buffer_create, h, DOORBELL_VIDEO, BYTES, &video, NULL) == DOORBELL_OK) {
        doorbell_step_t steps[] = {copy_step(video, 0, in, 0, sizeof data, (uint32_t)below(4) == 3 ? 4 : 0), launch_step(a_graph(s)), copy_step(out, 0, video, 0, sizeof data, 0)};
        if (DOORBELL(chain_create, h, steps, 3, sizeof *steps, chain_flags(), &chain) == DOORBELL_OK && !own_words(h, c, chain))
            chain = 0;
    }
    options.chain = chain;
    options.input = in;
    options.output = out;
    options.input_bytes = options.output_bytes = sizeof data;
    options.period_ns = below(2) * below(2 * MS);
    options.take = (uint32_t)below(2);
    options.late = (uint32_t)below(one_in(20) ? 9 : 3);
    options.flags = (uint32_t)below(4);
    options.signal_each = (uint32_t)below(3);
    if (chain && DOORBELL(loop_create, h, &options, &loop) == DOORBELL_OK) {
        for (int n = 0; n < POOL; n++)
            atomic_store(&s->pool[LOOP][n], loop);
        for (uint32_t n = 0; n < 20; n++) {
            doorbell_result_t result = {.size = sizeof result};
            uint64_t number, timeout = below(3 * MS);
            bool there = false;
            for (uint32_t i = 0; i < 64; i++)
                data[i] = n * 1000 + i;
            DOORBELL(loop_put, h, loop, data, sizeof data + one_in(50), n, 0, n + 7, &number);
            DO_IN(ms_of(timeout), loop_wait, doorbell_loop_wait(h, loop, timeout));
            while (DOORBELL(loop_next, h, loop, &result, back, sizeof back, &there) == DOORBELL_OK && there) {
                int right = result.refused || (result.tag == result.sequence + 7 && result.sequence < 20);
                for (uint32_t i = 0; i < 64 && !result.refused; i++)
                    right &= back[i] == (uint32_t)result.sequence * 1000 + i;
                if (!right)
                    complain("a loop's result: frame %llu, sequence %llu, words %u and %u", (unsigned long long)result.frame, (unsigned long long)result.sequence, back[0], back[63]);
            }
        }
        DOORBELL(loop_free, h, loop);
    }
    if (chain)
        DOORBELL(graph_free, h, chain);
    for (int n = 0; n < 3; n++)
        if ((doorbell_buffer_t[]){in, out, video}[n])
            DOORBELL(buffer_free, h, (doorbell_buffer_t[]){in, out, video}[n]);
}

static void a_loop_call(struct session *s, doorbell_t *h)
{
    doorbell_loop_statistics_t statistics = {.size = sizeof statistics};
    doorbell_loop_t loop = pick(s, LOOP);
    int32_t descriptor;
    char text[100];
    switch (below(6)) {
    case 0: DOORBELL(loop_stop, h, loop); break;
    case 1: DOORBELL(loop_free, h, loop); break;
    case 2: DOORBELL(loop_descriptor, h, loop, &descriptor); break;
    default: DOORBELL(loop_statistics, h, loop, &statistics, text, below(sizeof text));
    }
}

/* ---- sessions, processes, threads ---- */

static int open_session(struct session *s)
{
    doorbell_options_t options = {.size = sizeof options, .kind = DOORBELL_BESIDE_CUDA, .gpu = (uint32_t)s->gpu, .lanes = 1 + (uint32_t)below(8),
                                  .launch_lanes = 2, .profile = "", .flags = one_in(4) ? DOORBELL_CHECK : 0};
    doorbell_t *h = NULL;
    int code = DOORBELL(create, &options, &h);
    if (code != DOORBELL_OK) {
        complain("doorbell_create: %d (%s)", code, doorbell_error_detail());
        return 0;
    }
    s->ends = now() + (1000 + below(4000)) * MS;
    atomic_store(&s->dead, 0);
    atomic_store(&s->handle, h);
    return 1;
}

static void close_session(struct session *s)
{
    if (pthread_mutex_trylock(&s->closing) != 0)
        return;
    if (atomic_load(&s->dead) || now() > s->ends) {
        if (DOORBELL(free, atomic_load(&s->handle)) != DOORBELL_OK)
            complain("doorbell_free: %s", doorbell_error_detail());
        open_session(s);
    }
    pthread_mutex_unlock(&s->closing);
}

static volatile int in_call;
static void child_hangs(int signal)
{
    (void)signal;
    _exit(32 + in_call);
}
#define IN(n, call) (in_call = (n), doorbell_##call)

static void a_child(struct session *s, doorbell_t *h)
{
    doorbell_buffer_t a = a_buffer(s, 0), b = a_buffer(s, 0);
    doorbell_ticket_t ticket = a_ticket(s);
    uint64_t transfer = pick(s, TRANSFER), ring = pick(s, RING), queue = pick(s, QUEUE), loop = pick(s, LOOP);
    struct counted *c = a_graph(s);
    doorbell_graph_t graph = c ? atomic_load(&c->graph) : 0;
    int status = 0;
    begin_call(K_forked);
    pid_t child = fork();
    if (child == 0) {
        doorbell_frame_t frame = {.size = sizeof frame};
        doorbell_loop_statistics_t statistics = {.size = sizeof statistics};
        doorbell_options_t options = {.size = sizeof options};
        doorbell_t *other = NULL;
        bool done;
        signal(SIGALRM, child_hangs);
        alarm(10);
        int codes[] = {IN(0, poll(h, ticket, &done)), IN(1, wait(h, ticket, DOORBELL_FOREVER)), IN(2, copy(h, a, 0, b, 0, 8, DOORBELL_FOREVER)),
                       IN(3, copy_async(h, a, 0, b, 0, 8, NULL, &ticket)), IN(4, transfer_async(h, transfer, NULL, &ticket)), IN(5, ring_next(h, ring, &frame)),
                       IN(6, graph_launch(h, graph, NULL, &ticket)), IN(7, queue_add(h, queue, ticket, 1)), IN(8, loop_statistics(h, loop, &statistics, NULL, 0)),
                       IN(9, buffer_free(h, a)), IN(10, transfer_free(h, transfer)), IN(11, loop_stop(h, loop)), IN(12, graph_free(h, graph)),
                       IN(13, queue_wait(h, queue, DOORBELL_FOREVER)), IN(14, create(&options, &other)), IN(15, free(h))};
        for (size_t n = 0; n < sizeof codes / sizeof *codes; n++)
            if (codes[n] != DOORBELL_FORKED)
                _exit(16 + (int)n);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, &status, 0);
    end_call(K_forked, 0, 0);
    if (child < 0 || status != 0)
        complain("a forked child: status %#x (0x10 and the number of the call that is not FORKED, or 0x20 and of one that does not return; then 00)", status);
}

static void any_call(int short_lived)
{
    struct session *s = &sessions[below(session_count)];
    doorbell_t *h = atomic_load(&s->handle);
    on_gpu(s->gpu);
    if (atomic_load(&s->dead) || now() > s->ends)
        close_session(s);
    uint64_t how = below(1000);
    if (how < 150) a_copy(s, h);
    else if (how < 190) a_buffer_call(s, h);
    else if (how < 240) change_block(s);
    else if (how < 400) a_prepared_copy(s, h);
    else if (how < 500) a_wait(s, h);
    else if (how < 570) a_queue_call(s, h);
    else if (how < 590) a_message_call(s, h);
    else if (how < 750) a_graph_call(s, h);
    else if (how < 755) a_freed_pointer(s, h);
    else if (how < 765) a_loop_call(s, h);
    else if (short_lived) a_copy(s, h);
    else if (how < 770) a_loop(s, h);
    else if (how < 790) held_copy(s, h);
    else if (how < 792) a_child(s, h);
    else if (how < 990) round_trip(s, h);
    else if (how < 995) {
        lock_submits(0);
        CUDA(cu_fill(me->device[s->gpu] + BYTES, 1, 16, me->streams[s->gpu]));
        unlock_submits();
        DO(cuda_synchronize, cu_synchronize(me->streams[s->gpu]));
    } else
        usleep((useconds_t)below(3000));
}

static void *short_lived(void *argument)
{
    me = argument;
    me->gpu = -1;
    for (uint64_t n = below(30); n > 0; n--)
        any_call(1);
    return NULL;
}

static void *run(void *argument)
{
    struct thread *child = (struct thread *)argument + MOST_THREADS;
    int has_child = 0;
    me = argument;
    me->gpu = -1;
    for (int gpu = 0; gpu < gpus; gpu++) {
        on_gpu(gpu);
        CUDA(cu_stream(&me->streams[gpu], 1));
        CUDA(cu_event(&me->events[gpu], 2));
        CUDA(cu_host_alloc((void **)&me->host[gpu], 4 * BYTES, 0));
        CUDA(cu_alloc(&me->device[gpu], 2 * BYTES));
    }
    while (now() < until) {
        any_call(0);
        if (one_in(500)) {
            if (has_child)
                pthread_join(child->id, NULL);
            child->random = next_random() | 1;
            has_child = pthread_create(&child->id, NULL, short_lived, child) == 0;
        }
    }
    if (has_child)
        pthread_join(child->id, NULL);
    return NULL;
}

/* What other parts of a program do with CUDA. */
static void *neighbour(void *argument)
{
    me = argument;
    me->gpu = -1;
    while (now() < until) {
        void *module, *stream;
        address_t memory;
        on_gpu((int)below((uint64_t)gpus));
        lock_submits(0);
        if (CUDA(cu_load(&module, PTX)) == 0)
            CUDA(cu_unload(module));
        if (CUDA(cu_stream(&stream, 1)) == 0)
            CUDA(cu_stream_destroy(stream));
        unlock_submits();
        if (CUDA(cu_alloc(&memory, 1 << 20)) == 0)
            DO(cuda_free, cu_free(memory));
        usleep((useconds_t)below(20000));
    }
    return NULL;
}

static void *watch(void *unused)
{
    (void)unused;
    for (;;) {
        usleep(100000);
        uint64_t at = now();
        int late = 0;
        for (size_t n = 0; n < sizeof threads / sizeof *threads; n++) {
            uint64_t since = atomic_load(&threads[n].since);
            late |= since && since < at && at - since > 30 * limit;
            uint64_t release_at = atomic_load(&threads[n].release_at);
            if (release_at && release_at < at)
                *atomic_load(&threads[n].release_word) = 1;
        }
        if (!late)
            continue;
        for (size_t n = 0; n < sizeof threads / sizeof *threads; n++) {
            uint64_t since = atomic_load(&threads[n].since);
            if (since)
                fprintf(stderr, "thread %zu: in %s for %llu ms\n", n, calls[atomic_load(&threads[n].call)].name, (unsigned long long)((at - since) / MS));
        }
        abort();
    }
    return NULL;
}

static void print_calls(void)
{
    printf("%-22s %10s %10s %8s  codes\n", "call", "count", "ok", "max ms");
    for (int kind = 0; kind < KINDS; kind++) {
        unsigned long all = 0;
        for (int code = 0; code < 32; code++)
            all += counts[kind][code];
        printf("%-22s %10lu %10lu %8.1f ", calls[kind].name, all, (unsigned long)counts[kind][0], (double)longest[kind] / 1e6);
        for (int code = 1; code < 32; code++)
            if (counts[kind][code])
                printf(" %d: %lu", code, (unsigned long)counts[kind][code]);
        printf("\n");
    }
}

static int load_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    const struct { void *to; const char *name; } names[] = {
        {&cu_init, "cuInit"}, {&cu_devices, "cuDeviceGetCount"}, {&cu_device, "cuDeviceGet"}, {&cu_retain, "cuDevicePrimaryCtxRetain"},
        {&cu_set, "cuCtxSetCurrent"}, {&cu_alloc, "cuMemAlloc_v2"}, {&cu_free, "cuMemFree_v2"}, {&cu_host_alloc, "cuMemHostAlloc"},
        {&cu_host_free, "cuMemFreeHost"}, {&cu_register, "cuMemHostRegister_v2"}, {&cu_unregister, "cuMemHostUnregister"},
        {&cu_to_gpu, "cuMemcpyHtoD_v2"}, {&cu_from_gpu, "cuMemcpyDtoH_v2"}, {&cu_stream, "cuStreamCreate"}, {&cu_stream_destroy, "cuStreamDestroy_v2"},
        {&cu_synchronize, "cuStreamSynchronize"}, {&cu_event, "cuEventCreate"}, {&cu_record, "cuEventRecord"}, {&cu_load, "cuModuleLoadData"},
        {&cu_unload, "cuModuleUnload"}, {&cu_function, "cuModuleGetFunction"}, {&cu_begin, "cuStreamBeginCapture_v2"}, {&cu_end, "cuStreamEndCapture"},
        {&cu_launch, "cuLaunchKernel"}, {&cu_instantiate, "cuGraphInstantiateWithFlags"}, {&cu_exec_destroy, "cuGraphExecDestroy"},
        {&cu_graph_destroy, "cuGraphDestroy"}, {&cu_fill, "cuMemsetD32Async"},
    };
    for (size_t n = 0; library && n < sizeof names / sizeof *names; n++) {
        void *found = dlsym(library, names[n].name);
        if (!found)
            return fprintf(stderr, "no %s\n", names[n].name), 0;
        memcpy(names[n].to, &found, sizeof found);
    }
    return library != NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return fprintf(stderr, "usage: random SECONDS [SEED [THREADS]]\n"), 2;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : now();
    thread_count = argc > 3 ? atoi(argv[3]) : thread_count;
    thread_count = thread_count < 1 ? 1 : thread_count > MOST_THREADS ? MOST_THREADS : thread_count;
    if (getenv("RANDOM_LIMIT_MS"))
        limit = strtoull(getenv("RANDOM_LIMIT_MS"), NULL, 0) * MS;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed %llu, %d threads\n", (unsigned long long)seed, thread_count);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (doorbell_init() != DOORBELL_OK || !load_cuda() || cu_init(0) != 0 || cu_devices(&gpus) != 0)
        return fprintf(stderr, "no CUDA\n"), 77;
    gpus = gpus < GPUS ? gpus : GPUS;
    for (size_t n = 0; n < sizeof threads / sizeof *threads; n++) {
        threads[n].number = (int)n;
        threads[n].random = (seed + n + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    }
    me = &threads[2 * MOST_THREADS];
    me->gpu = -1;
    counted = calloc(WORDS / 2, sizeof *counted);
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&submits, &attributes);
    for (int gpu = 0; gpu < gpus; gpu++) {
        int device;
        void *module, *at = NULL;
        if (cu_device(&device, gpu) != 0 || cu_retain(&contexts[gpu], device) != 0 || cu_set(contexts[gpu]) != 0 || cu_load(&module, PTX) != 0
            || cu_function(&functions[gpu], module, "add1") != 0 || cu_host_alloc(&at, (size_t)WORDS * STRIDE * 4, 0) != 0)
            return fprintf(stderr, "CUDA gives no context or memory\n"), 1;
        words[gpu] = at;
        memset(at, 0, (size_t)WORDS * STRIDE * 4);
        for (int n = 0; n < BLOCKS; n++)
            pthread_mutex_init(&blocks[gpu][n].lock, NULL);
        for (int n = 0; n < EACH; n++) {
            struct session *s = &sessions[session_count++];
            s->gpu = gpu;
            s->number = n;
            pthread_mutex_init(&s->closing, NULL);
            if (!open_session(s))
                return 1;
        }
    }
    pthread_t watcher, beside;
    until = now() + (uint64_t)(atof(argv[1]) * 1e9);
    pthread_create(&watcher, NULL, watch, NULL);
    for (int n = 0; n < thread_count; n++)
        pthread_create(&threads[n].id, NULL, run, &threads[n]);
    pthread_create(&beside, NULL, neighbour, &threads[2 * MOST_THREADS + 1]);
    for (int n = 0; n < thread_count; n++)
        pthread_join(threads[n].id, NULL);
    pthread_join(beside, NULL);
    for (int n = 0; n < session_count; n++)
        if (DOORBELL(free, sessions[n].handle) != DOORBELL_OK)
            complain("doorbell_free: %s", doorbell_error_detail());
    int graphs = 0;
    for (int n = 0; n < WORDS / 2; n++)
        if (counted[n].graph) {
            check_count(&counted[n]);
            graphs++;
        }
    print_calls();
    printf("seed %llu: %d graphs and chains, %s\n", (unsigned long long)seed, graphs, atomic_load(&wrong) ? "something is wrong" : "all right");
    return atomic_load(&wrong) != 0;
}
