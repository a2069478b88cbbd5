/* What the order between a CUDA stream and copies costs: ours against CUDA's own copy on the same stream and on another, in turns.
 *
 *   cc -O2 -pthread examples/c/order_cost.c -o target/prefix/order_cost -Itarget/prefix/include -Ltarget/prefix/lib \
 *      -Wl,-rpath,'$ORIGIN/lib' -ldoorbell -ldl
 *   target/prefix/order_cost [rounds, 5000] [--seconds 20]
 *
 * Into one stream go: a kernel that waits for a word of the CPU's, then writes new data and says "ended"; a copy of that data; and a
 * kernel that says "running". All is queued before the CPU gives the word, so no call is on the way. The CPU polls host memory:
 * `ended` is when the first kernel's word arrives, `there` when the data's last word has arrived at the copy's end (copies to host
 * memory alone), `next` when the second kernel's word arrives. CUDA's copy is cuMemcpyAsync on the stream, or on another one
 * between two events; ours is doorbell_copy_batch_async() and doorbell_stream_wait(); `nothing` has no copy. Two cells have a half of such an order alone: CUDA
 * writes a word in the stream, or waits for a word that is there. What the calls cost is read around them in the same rounds. Both
 * ways write data that changes with each round, and it is compared.
 *
 * Exit status: 0, 1 for wrong data or an error, 77 without CUDA. */
#define _GNU_SOURCE
#include "driver_api.h"
#include "samples.h"
#include <sched.h>

enum { LARGE = 64 * 1024, WARM = 20 };

static void *stream, *other, *before, *after, *gate, *mark;

/* gate(gate, data, flag, number): waits until the word at gate is the number or above, at most two seconds; stores the number at data,
 * then at flag. mark(flag, number): stores the number. */
static const char PTX[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry gate(.param .u64 gate_gate, .param .u64 gate_data, .param .u64 gate_flag, .param .u32 gate_number)\n"
    "{\n"
    "    .reg .pred %p<2>;\n"
    "    .reg .b32 %number, %seen;\n"
    "    .reg .b64 %gate, %data, %flag, %start, %time;\n"
    "    ld.param.u64 %gate, [gate_gate];\n"
    "    ld.param.u64 %data, [gate_data];\n"
    "    ld.param.u64 %flag, [gate_flag];\n"
    "    ld.param.u32 %number, [gate_number];\n"
    "    mov.u64 %start, %globaltimer;\n"
    "AGAIN:\n"
    "    ld.volatile.u32 %seen, [%gate];\n"
    "    sub.u32 %seen, %seen, %number;\n"
    "    setp.ge.s32 %p0, %seen, 0;\n"
    "    @%p0 bra OPEN;\n"
    "    mov.u64 %time, %globaltimer;\n"
    "    sub.u64 %time, %time, %start;\n"
    "    setp.lt.u64 %p1, %time, 2000000000;\n"
    "    @%p1 bra AGAIN;\n"
    "OPEN:\n"
    "    st.volatile.u32 [%data], %number;\n"
    "    membar.sys;\n"
    "    st.volatile.u32 [%flag], %number;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry mark(.param .u64 mark_flag, .param .u32 mark_number)\n"
    "{\n"
    "    .reg .b32 %number;\n"
    "    .reg .b64 %flag;\n"
    "    ld.param.u64 %flag, [mark_flag];\n"
    "    ld.param.u32 %number, [mark_number];\n"
    "    st.volatile.u32 [%flag], %number;\n"
    "    ret;\n"
    "}\n";

enum by { NOTHING, CUDA, EVENTS, OURS, WRITE, WAIT };
enum what { ENDED_THERE, THERE_NEXT, ENDED_NEXT, COPY_CALL, HOLD_CALL, METRICS };
static const char *const METRIC[METRICS] = {"kernel end -> bytes there", "bytes there -> next kernel", "kernel end -> next kernel",
                                            "CPU: the call", "CPU: the call that holds"};

struct cell {
    const char *name;
    enum by by;
    int to_host;
    uint32_t bytes;
    struct samples of[METRICS];
};

static struct cell cells[] = {
    {.name = "nothing between", .by = NOTHING},
    {.name = "a word written", .by = WRITE},
    {.name = "a word waited for", .by = WAIT},
    {.name = "8 B to host, CUDA", .by = CUDA, .to_host = 1, .bytes = 8},
    {.name = "8 B to host, 2 streams", .by = EVENTS, .to_host = 1, .bytes = 8},
    {.name = "8 B to host, ours", .by = OURS, .to_host = 1, .bytes = 8},
    {.name = "8 B to GPU, CUDA", .by = CUDA, .bytes = 8},
    {.name = "8 B to GPU, 2 streams", .by = EVENTS, .bytes = 8},
    {.name = "8 B to GPU, ours", .by = OURS, .bytes = 8},
    {.name = "64 KiB to host, CUDA", .by = CUDA, .to_host = 1, .bytes = LARGE},
    {.name = "64 KiB to host, 2 streams", .by = EVENTS, .to_host = 1, .bytes = LARGE},
    {.name = "64 KiB to host, ours", .by = OURS, .to_host = 1, .bytes = LARGE},
    {.name = "64 KiB to GPU, CUDA", .by = CUDA, .bytes = LARGE},
    {.name = "64 KiB to GPU, 2 streams", .by = EVENTS, .bytes = LARGE},
    {.name = "64 KiB to GPU, ours", .by = OURS, .bytes = LARGE},
};
enum { CELLS = sizeof cells / sizeof *cells };

static doorbell_buffer_t video, host;
static address_t video_at;
/* Host memory: data of copies to the host, data of copies from it, and the words by which kernels and CPU talk. */
static unsigned char *host_at;
enum { GEQ = 0, DISABLE_TIMING = 2, BACK = 0, AWAY = LARGE, TALK = 2 * LARGE, ALL = 2 * LARGE + 4096 };

static uint32_t volatile *word(uint64_t at)
{
    return (uint32_t volatile *)(host_at + at);
}

/* When the word came to the number. */
static uint64_t arrived(uint64_t at, uint32_t number, const char *what)
{
    uint64_t start = now();
    for (;;) {
        uint64_t at_least = now();
        if (*word(at) == number)
            return at_least;
        if (at_least - start > PATIENCE) {
            fprintf(stderr, "%s: not there after ten seconds\n", what);
            exit(1);
        }
        if (at_least - start > 1000000)
            sched_yield();
    }
}

static void launch(void *kernel, void **arguments)
{
    cuda(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
}

/* The stream `next` waits for all that is in `first` now. */
static void goes_on(void *next, void *event, void *first)
{
    cuda(cuEventRecord(event, first), "cuEventRecord");
    cuda(cuStreamWaitEvent(next, event, 0), "cuStreamWaitEvent");
}

static int is_later(int code, const char *what)
{
    if (code == DOORBELL_BUSY || code == DOORBELL_FULL)
        return 1;
    check(code, what);
    return 0;
}

static void shot(struct cell *c, uint32_t number, int counts)
{
    uint64_t last = c->bytes < 4 ? 0 : c->bytes - 4;
    address_t talk = (address_t)(uintptr_t)(host_at + TALK), flag = talk + 64, next = talk + 128;
    address_t data = !c->bytes ? talk + 192
                     : c->to_host     ? video_at + last
                                      : (address_t)(uintptr_t)(host_at + AWAY + last);
    void *first[] = {&talk, &data, &flag, &number}, *second[] = {&next, &number};
    uint64_t called = 0, held = 0, holding = 0, there = 0;
    launch(gate, first);
    uint64_t start = now();
    if (c->by == CUDA || c->by == EVENTS) {
        void *on = c->by == CUDA ? stream : other;
        if (c->by == EVENTS)
            goes_on(other, before, stream);
        cuda(c->to_host ? cuMemcpyDtoHAsync(host_at + BACK, video_at, c->bytes, on)
                        : cuMemcpyHtoDAsync(video_at, host_at + AWAY, c->bytes, on), "cuMemcpyAsync");
        called = now() - start;
        holding = now();
        if (c->by == EVENTS) {
            goes_on(stream, after, other);
            held = now() - holding;
        }
    } else if (c->by == OURS) {
        doorbell_piece_t piece = c->to_host ? (doorbell_piece_t){host, BACK, video, 0, c->bytes}
                                            : (doorbell_piece_t){video, 0, host, AWAY, c->bytes};
        doorbell_order_t order = doorbell_after_stream(stream);
        doorbell_ticket_t ticket;
        while (is_later(doorbell_copy_batch_async(doorbell, &piece, 1, sizeof piece, &order, &ticket), "copy"))
            start = now();
        called = now() - start;
        holding = now();
        while (is_later(doorbell_stream_wait(doorbell, stream, ticket), "hold the stream"))
            holding = now();
        held = now() - holding;
    } else if (c->by == WRITE || c->by == WAIT) {
        int code = c->by == WRITE ? cuStreamWriteValue32(stream, talk + 256, number, 0) : cuStreamWaitValue32(stream, talk + 320, 0, GEQ);
        called = now() - start;
        cuda(code, c->name);
    }
    launch(mark, second);
    *word(TALK) = number;
    uint64_t ended = arrived(TALK + 64, number, "the first kernel");
    if (c->to_host)
        there = arrived(BACK + last, number, c->name);
    uint64_t running = arrived(TALK + 128, number, "the second kernel");
    if (c->by == WRITE && *word(TALK + 256) != number) {
        fprintf(stderr, "%s: %u, not %u\n", c->name, *word(TALK + 256), number);
        exit(1);
    }
    if (c->bytes && !c->to_host) {
        uint32_t found = 0;
        cuda(cuMemcpyDtoH(&found, video_at + last, 4), "cuMemcpyDtoH");
        if (found != number) {
            fprintf(stderr, "%s: %u, not %u\n", c->name, found, number);
            exit(1);
        }
    }
    if (!counts)
        return;
    add(&c->of[ENDED_NEXT], running - ended);
    if (c->to_host) {
        add(&c->of[ENDED_THERE], there - ended);
        add(&c->of[THERE_NEXT], running - there);
    }
    if (c->by != NOTHING)
        add(&c->of[COPY_CALL], called);
    if (c->by == OURS || c->by == EVENTS)
        add(&c->of[HOLD_CALL], held);
}

/* Each call once with nothing that waits: CUDA loads code when it is first used, and may wait for all kernels then. */
static void first_calls(void)
{
    uint32_t number = 0;
    address_t talk = (address_t)(uintptr_t)(host_at + TALK), data = talk + 192, flag = talk + 64, next = talk + 128;
    void *first[] = {&talk, &data, &flag, &number}, *second[] = {&next, &number};
    launch(gate, first);
    cuda(cuStreamWriteValue32(stream, talk + 256, 0, 0), "cuStreamWriteValue32");
    cuda(cuStreamWaitValue32(stream, talk + 320, 0, GEQ), "cuStreamWaitValue32");
    for (uint32_t bytes = 8; bytes <= LARGE; bytes *= LARGE / 8) {
        doorbell_piece_t pieces[] = {{host, BACK, video, 0, bytes}, {video, 0, host, AWAY, bytes}};
        doorbell_ticket_t ticket;
        void *streams[] = {stream, other};
        for (int i = 0; i < 2; i++) {
            cuda(cuMemcpyDtoHAsync(host_at + BACK, video_at, bytes, streams[i]), "cuMemcpyAsync");
            cuda(cuMemcpyHtoDAsync(video_at, host_at + AWAY, bytes, streams[i]), "cuMemcpyAsync");
        }
        for (int i = 0; i < 2; i++) {
            doorbell_order_t order = doorbell_after_stream(stream);
            check(doorbell_copy_batch_async(doorbell, &pieces[i], 1, sizeof pieces[i], &order, &ticket), "copy");
            check(doorbell_stream_wait(doorbell, stream, ticket), "hold the stream");
        }
    }
    launch(mark, second);
    cuda(cuCtxSynchronize(), "cuCtxSynchronize");
}

static void open_all(void)
{
    void *module, *pointer;
    cuda(cuModuleLoadData(&module, PTX), "cuModuleLoadData");
    gate = kernel_of(module, "gate");
    mark = kernel_of(module, "mark");
    cuda(cuMemAlloc(&video_at, LARGE), "cuMemAlloc");
    cuda(cuMemHostAlloc(&pointer, ALL, 0), "cuMemHostAlloc");
    cuda(cuStreamCreate(&stream, 1), "cuStreamCreate");
    cuda(cuStreamCreate(&other, 1), "cuStreamCreate");
    cuda(cuEventCreate(&before, DISABLE_TIMING), "cuEventCreate");
    cuda(cuEventCreate(&after, DISABLE_TIMING), "cuEventCreate");
    host_at = pointer;
    memset(host_at, 0, ALL);
    open_session(1, 0);
    video = pinned((void *)(uintptr_t)video_at, LARGE);
    host = pinned(pointer, ALL);
}

int main(int argc, char **argv)
{
    unsigned long rounds = 5000;
    double limit = 20;
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && !strcmp(argv[i], "--seconds"))
            limit = strtod(argv[++i], NULL);
        else if (argv[i][0] != '-')
            rounds = strtoul(argv[i], NULL, 10);
        else {
            fprintf(stderr, "usage: order_cost [rounds] [--seconds N]\n");
            return 2;
        }
    }
    begin_beside_cuda("there are no streams to be ordered against");
    open_all();
    end_at_signals();
    first_calls();
    uint64_t start = now();
    uint32_t number = 0;
    unsigned long done = 0;
    for (unsigned long round = 0; round < rounds + WARM && !stop && (double)(now() - start) < limit * 1e9; round++) {
        for (int i = 0; i < CELLS; i++)
            shot(&cells[(i + round) % CELLS], ++number, round >= WARM);
        done += round >= WARM;
    }
    cuda(cuCtxSynchronize(), "cuCtxSynchronize");
    printf("%lu rounds in %.1f s, the cells in turns, all data right; ns; 0: fewer than ten samples lie beyond it\n", done, (double)(now() - start) / 1e9);
    printf("%-27s %-26s %7s %8s %8s %9s\n", "what", "way", "n", "p50", "p99", "max");
    for (int m = 0; m < METRICS; m++) {
        for (int i = 0; i < CELLS; i++) {
            struct samples *s = &cells[i].of[m];
            sorted(s);
            if (s->count)
                printf("%-27s %-26s %7zu %8" PRIu64 " %8" PRIu64 " %9" PRIu64 "\n", METRIC[m], cells[i].name, s->count, p50(s), p99(s), most(s));
        }
    }
    check(doorbell_free(doorbell), "doorbell_free");
    return 0;
}
