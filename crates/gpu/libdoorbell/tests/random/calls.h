/* Of random.c: what its parts share: each call with the codes and the time that doorbell.h states, and what is not as stated. */
#ifndef RANDOM_CALLS_H
#define RANDOM_CALLS_H

#include "driver_api.h"
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* STRIDE: words that several lanes count at the same time are not in one line. */
enum { GPUS = 2, EACH = 2, BLOCKS = 8, POOL = 12, TICKETS = 64, BYTES = 65536, WORDS = 1 << 17, STRIDE = 16, MOST_THREADS = 64, GUARD = 64 };
#define FOREVER_MS 25000
#define MS UINT64_C(1000000)

/* The codes of each call besides OK, as doorbell.h lists them, and the milliseconds that it may take by itself. CUDAS: for another thread's call of
 * CUDA. LAUNCHES: for pending launches. OTHERS: for another thread's call that waits for launches. */
#define CUDAS 2000
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
    X(buffer_register, B(NOT_PINNABLE) | B(UNAVAILABLE) | B(LIMIT) | B(ARGUMENT) | B(CLOSED), CUDAS)                                       \
    X(buffer_create, B(DRIVER) | B(LIMIT) | B(ARGUMENT) | B(CLOSED), 0) X(buffer_get, ENDED, 0) X(buffer_free, ENDED, 2000)                         \
    X(copy, (SUBMIT & ~(B(BUSY) | B(FULL) | B(LIMIT) | B(CUDA) | B(UNAVAILABLE))) | B(TIMEOUT), 0)                                                    \
    X(copy_async, SUBMIT, 0) X(copy_batch_async, SUBMIT, 0) X(pages_async, SUBMIT, 0) X(copy_explain, ENDED | B(ARGUMENT), 0)                             \
    X(transfer_create, PREPARE, CUDAS) X(transfer_create_bytes, PREPARE, 0) X(transfer_async, SUBMIT, 0) X(transfer_bytes_async, SUBMIT, 0)    \
    X(transfer_free, ENDED, 0) X(wait, ENDED | DEAD | B(TIMEOUT), 0) X(wait_sleeping, ENDED | DEAD | B(TIMEOUT), 0)                        \
    X(wait_any, ENDED | DEAD | B(TIMEOUT) | B(ARGUMENT), 0) X(wait_all, ENDED | DEAD | B(TIMEOUT) | B(ARGUMENT), 0)                        \
    X(poll, ENDED | DEAD, 0) X(pending, ENDED | DEAD, 0) X(stream_wait, SUBMIT, CUDAS)                                                         \
    X(queue_create, B(ARGUMENT) | B(LIMIT), 0) X(queue_add, B(FULL) | B(UNAVAILABLE) | ENDED, 0) X(queue_poll, B(HANDLE) | B(ARGUMENT), 0) \
    X(queue_wait, ENDED | B(TIMEOUT), 0) X(queue_remove, B(HANDLE), 0) X(queue_descriptor, ENDED | B(UNAVAILABLE), 0)                      \
    X(queue_free, B(HANDLE), 0) X(ring_create, PREPARE, CUDAS)                                                                                 \
    X(ring_next, B(OVERRUN) | B(BUSY) | B(ARGUMENT) | ENDED | DEAD, 0) X(ring_async, SUBMIT, 0) X(ring_free, ENDED, 0)                     \
    X(message_create, PREPARE | DEAD, CUDAS) X(message_send, B(BUSY) | B(FULL) | B(ARGUMENT) | B(FREED) | ENDED, 0)                                   \
    X(message_wait, B(TIMEOUT) | B(FREED) | ENDED, 0) X(message_free, ENDED, 0)                                                            \
    X(graph_create, GRAPHS, 10000) X(graph_instantiate, GRAPHS, 10000) X(graph_create_kernel, GRAPHS | B(ARGUMENT), 10000)                             \
    X(graph_create_copy, GRAPHS | B(ARGUMENT) | B(FREED) | B(HANDLE), 10000) X(graph_kernels, ENDED | B(ARGUMENT), 2000)                          \
    X(graph_set_param, ENDED | B(BUSY) | B(OUTSIDE) | B(ARGUMENT), 0)                                                                      \
    X(graph_set_pointer, ENDED | B(OUTSIDE) | B(ARGUMENT) | B(FREED) | B(TIMEOUT), 10000)                                                  \
    X(graph_launch, ENDED | DEAD | B(BUSY) | B(FULL) | B(FREED), 0) X(graph_launch_ordered, SUBMIT, 0)                                     \
    X(graph_free, ENDED | B(TIMEOUT), 10000) X(chain_create, PREPARE | B(GRAPH) | B(TIMEOUT) | DEAD, 10000)                                                        \
    X(loop_create, ENDED | B(ARGUMENT) | B(UNAVAILABLE) | B(LIMIT), 0)                                                                     \
    X(loop_put, B(BUSY) | B(FULL) | B(UNAVAILABLE) | B(ARGUMENT) | ENDED | B(FREED) | B(STOPPED), 0)                                       \
    X(loop_next, B(BUSY) | B(HANDLE) | B(ARGUMENT), 0) X(loop_wait, B(BUSY) | B(TIMEOUT) | B(HANDLE), 0)                                   \
    X(loop_descriptor, B(HANDLE), 0) X(loop_statistics, B(HANDLE) | B(ARGUMENT), 0) X(loop_stop, B(HANDLE), 0) X(loop_free, B(HANDLE), 0)  \
    X(cuda_free, 0, 10000) X(cuda, 0, CUDAS) X(cuda_synchronize, 0, FOREVER_MS) X(forked, 0, 0) X(waits_for_close, 0, FOREVER_MS)              \
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
    int gpu, number, checks;
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
    int number, gpu, task;
    /* Its submissions call CUDA: the session has DOORBELL_CHECK, or the order names a stream or an event. */
    int asks;
    atomic_int call;
    /* The milliseconds that the call may take. */
    atomic_uint allowed;
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

static void begin_thread(struct thread *thread)
{
    me = thread;
    me->gpu = -1;
    me->task = gettid();
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

static void begin_call(int kind, uint64_t more_ms)
{
    atomic_store(&me->call, kind);
    atomic_store(&me->allowed, (unsigned)(calls[kind].ms + more_ms + (me->asks && calls[kind].codes & B(FREED) ? CUDAS : 0)));
    atomic_store(&me->since, now());
}

static int end_call(int kind, int code)
{
    uint64_t took = now() - atomic_load(&me->since), was = atomic_load(&longest[kind]);
    atomic_store(&me->since, 0);
    while (took > was && !atomic_compare_exchange_weak(&longest[kind], &was, took))
        ;
    int place = code < 0 || code > 31 ? 31 : code;
    atomic_fetch_add(&counts[kind][place], 1);
    /* Whatever a call's comment lists, a session that another thread frees is CLOSED. */
    uint32_t codes = calls[kind].codes | (kind != K_create && kind < K_cuda_free ? B(CLOSED) : 0);
    if (!(codes >> place & 1) || code == DOORBELL_KILLED)
        complain("%s: code %d (%s)", calls[kind].name, code, kind < K_cuda_free ? doorbell_error_detail() : "");
    /* A close waits for calls, and for pending work. A call that finds this may wait for the close. */
    uint64_t allowed = atomic_load(&me->allowed) + (code == DOORBELL_CLOSED ? LAUNCHES + OTHERS : 0);
    if (took > limit + allowed * MS)
        complain("%s took %llu ms, code %d", calls[kind].name, (unsigned long long)(took / MS), code);
    return code;
}
#define DO_IN(ms, kind, call) (begin_call(K_##kind, (ms)), end_call(K_##kind, (call)))
#define DO(kind, call) DO_IN(0, kind, call)
#define DOORBELL(name, ...) DO(name, doorbell_##name(__VA_ARGS__))
#define CUDA(call) DO(cuda, call)

static void lock_submits(int alone)
{
    begin_call(K_waits_for_lock, 0);
    alone ? pthread_rwlock_wrlock(&submits) : pthread_rwlock_rdlock(&submits);
    end_call(K_waits_for_lock, 0);
}
static void unlock_submits(void) { pthread_rwlock_unlock(&submits); }

static void on_gpu(int gpu)
{
    if (me->gpu != gpu)
        cuCtxSetCurrent(contexts[gpu]);
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

#endif
