/* A million copies and kernels, ordered against 8 CUDA streams from 8 threads: is every word right?
 *
 *   crates/gpu/libdoorbell/install.sh --prefix target/prefix
 *   cc -O2 -pthread examples/c/ordered.c -o target/prefix/ordered -Itarget/prefix/include -Ltarget/prefix/lib \
 *      -Wl,-rpath,'$ORIGIN/lib' -ldoorbell -ldl
 *   target/prefix/ordered [copies in all, 1000000] [--seconds 100] [--without-order both|copy|stream]
 *
 * A chain has three buffers in a circle: GPU memory, host memory, GPU memory. Each step copies from one to the next, so the
 * three directions take turns. In front of the copy a kernel has written a pattern of this step's; behind it a kernel counts the
 * words that are not the pattern, and writes the next step's pattern over them at once. The copy waits for the stream
 * (doorbell_after_stream), the stream for the copy (doorbell_stream_wait). A copy that reads too early carries the words of an older
 * step; a kernel that looks too early finds them; and a copy that writes late spoils the next pattern.
 *
 * Four threads have a chain and a stream each. The other four are two pairs: a pair shares a chain, and each copy waits for one
 * thread's stream and holds the other's. All chains lie in the same two pinned buffers.
 *
 * --without-order leaves the order out: `copy`: copies do not wait for streams; `stream`: streams do not wait for copies. Then
 * there must be mismatches, or this test could not fail.
 *
 * Exit status 0: no mismatch, or with --without-order at least one; 1: otherwise; 77: no CUDA. */
#define _GNU_SOURCE
#include "driver_api.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 8, ALONE = 4, CHAINS = ALONE + (THREADS - ALONE) / 2, WORDS = 16384, DEPTH = 32, PIECES = 4 };

static void *kernel;

/* step(buffer, check, expected, write, next, wrong): adds to *wrong how many of the first `check` words are not the pattern of
 * `expected`, and writes the pattern of `next` to the first `write`. A word's pattern is seed * 0x9e3779b1 ^ index * 0x85ebca6b. */
static const char PTX[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry step(.param .u64 buffer, .param .u32 check, .param .u32 expected, .param .u32 write, .param .u32 next,\n"
    "                     .param .u64 wrong)\n"
    "{\n"
    "    .reg .pred %p<2>;\n"
    "    .reg .b32 %check, %expected, %write, %next, %i, %step, %threads, %blocks, %block, %word, %want, %mixed;\n"
    "    .reg .b64 %buffer, %wrong, %at, %count;\n"
    "    ld.param.u64 %buffer, [buffer];\n"
    "    ld.param.u32 %check, [check];\n"
    "    ld.param.u32 %expected, [expected];\n"
    "    ld.param.u32 %write, [write];\n"
    "    ld.param.u32 %next, [next];\n"
    "    ld.param.u64 %wrong, [wrong];\n"
    "    cvta.to.global.u64 %buffer, %buffer;\n"
    "    cvta.to.global.u64 %wrong, %wrong;\n"
    "    mul.lo.u32 %expected, %expected, 0x9e3779b1;\n"
    "    mul.lo.u32 %next, %next, 0x9e3779b1;\n"
    "    mov.u32 %i, %tid.x;\n"
    "    mov.u32 %threads, %ntid.x;\n"
    "    mov.u32 %blocks, %nctaid.x;\n"
    "    mov.u32 %block, %ctaid.x;\n"
    "    mad.lo.u32 %i, %block, %threads, %i;\n"
    "    mul.lo.u32 %step, %threads, %blocks;\n"
    "    mov.u64 %count, 0;\n"
    "AGAIN:\n"
    "    mul.wide.u32 %at, %i, 4;\n"
    "    add.u64 %at, %at, %buffer;\n"
    "    mul.lo.u32 %mixed, %i, 0x85ebca6b;\n"
    "    setp.ge.u32 %p0, %i, %check;\n"
    "    @%p0 bra CHECKED;\n"
    "    ld.global.u32 %word, [%at];\n"
    "    xor.b32 %want, %mixed, %expected;\n"
    "    setp.ne.u32 %p1, %word, %want;\n"
    "    @%p1 add.u64 %count, %count, 1;\n"
    "CHECKED:\n"
    "    setp.ge.u32 %p1, %i, %write;\n"
    "    @%p1 bra WRITTEN;\n"
    "    xor.b32 %want, %mixed, %next;\n"
    "    st.global.u32 [%at], %want;\n"
    "    add.u32 %i, %i, %step;\n"
    "    bra AGAIN;\n"
    "WRITTEN:\n"
    "    add.u32 %i, %i, %step;\n"
    "    @!%p0 bra AGAIN;\n"
    "    setp.eq.u64 %p0, %count, 0;\n"
    "    @%p0 bra DONE;\n"
    "    red.global.add.u64 [%wrong], %count;\n"
    "DONE:\n"
    "    ret;\n"
    "}\n";

/* Without these, nothing orders the one or the other. */
static int copies_wait = 1, streams_wait = 1;

/* The buffers that all chains share, and where the CPU and the kernels see them. */
static doorbell_buffer_t video, host;
static address_t video_at;
static unsigned char *host_at;

struct place { doorbell_buffer_t buffer; uint64_t offset; address_t address; };

/* Three buffers in a circle. */
struct chain {
    unsigned number;
    _Atomic unsigned long step;
    unsigned long steps;
    doorbell_ticket_t last[DEPTH];
    address_t wrong;
};

static struct place place(const struct chain *c, unsigned long step)
{
    uint64_t bytes = WORDS * 4u, at = (step % 3 == 2) + 2u * c->number;
    if (step % 3 == 1)
        return (struct place){host, c->number * bytes, (address_t)(uintptr_t)(host_at + c->number * bytes)};
    return (struct place){video, at * bytes, video_at + at * bytes};
}

/* Words of a step: most are small, some are as long as there is room. */
static uint32_t words(const struct chain *c, unsigned long step)
{
    uint32_t mixed = ((uint32_t)step * 16 + c->number) * 0x9e3779b1u;
    mixed ^= mixed >> 15;
    return 1 + (mixed % 16 == 0 ? WORDS - 1 : (mixed >> 4) % 1024);
}

static uint32_t seed(const struct chain *c, unsigned long step)
{
    return (uint32_t)step * CHAINS + c->number + 1;
}

struct thread {
    pthread_t id;
    unsigned number;
    struct chain *chain;
    /* Of a pair, which of the two; and whose stream the copies wait for. */
    unsigned turn, turns;
    void *stream, *other;
    unsigned long copies, kernels, again;
};

/* One kernel: checks `step`'s words where they are, writes those of the step behind it over them. */
static void launch(struct thread *t, void *stream, unsigned long step, int is_first)
{
    struct chain *c = t->chain;
    address_t buffer = place(c, step).address, wrong = c->wrong;
    uint32_t checked = is_first ? 0 : words(c, step - 1), expected = is_first ? 0 : seed(c, step - 1);
    uint32_t written = words(c, step), next = seed(c, step);
    void *arguments[] = {&buffer, &checked, &expected, &written, &next, &wrong};
    unsigned threads = 256, longest = checked > written ? checked : written, blocks = (longest + threads - 1) / threads;
    cuda(cuLaunchKernel(kernel, blocks > 16 ? 16 : blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
    t->kernels++;
}

static int is_later(struct thread *t, int code, const char *what)
{
    if (code != DOORBELL_BUSY && code != DOORBELL_FULL) {
        check(code, what);
        return 0;
    }
    t->again++;
    sched_yield();
    return 1;
}

static void one_step(struct thread *t, unsigned long step)
{
    struct chain *c = t->chain;
    struct place from = place(c, step), to = place(c, step + 1);
    uint64_t bytes = words(c, step) * UINT64_C(4), done = 0;
    doorbell_piece_t pieces[PIECES];
    doorbell_ticket_t *ticket = &c->last[step % DEPTH];
    size_t count = 0;
    if (step >= DEPTH)
        check(doorbell_wait(doorbell, *ticket, PATIENCE), "wait for an older copy");
    /* One to four pieces, at odd places. */
    while (done < bytes) {
        uint64_t left = bytes - done, part = count + 1 == PIECES || left < 64 ? left : 1 + left * (1 + (step + count) % 3) / 4;
        doorbell_piece_t piece = {to.buffer, to.offset + done, from.buffer, from.offset + done, part};
        pieces[count++] = piece;
        done += part;
    }
    doorbell_order_t after = doorbell_after_stream(t->other);
    const doorbell_order_t *order = copies_wait ? &after : NULL;
    while (is_later(t, doorbell_copy_batch_async(doorbell, pieces, count, sizeof pieces[0], order, ticket), "copy"))
        ;
    while (streams_wait && is_later(t, doorbell_stream_wait(doorbell, t->stream, *ticket), "hold the stream"))
        ;
    launch(t, t->stream, step + 1, 0);
    t->copies++;
}

static void *work(void *argument)
{
    struct thread *t = argument;
    struct chain *c = t->chain;
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (;;) {
        unsigned long step = c->step;
        if (stop || step >= c->steps)
            return NULL;
        if (step % t->turns != t->turn) {
            sched_yield();
            continue;
        }
        one_step(t, step);
        c->step = step + 1;
    }
}

static struct chain chains[CHAINS];
static struct thread threads[THREADS];

static unsigned long copied(void)
{
    unsigned long all = 0;
    for (int i = 0; i < CHAINS; i++)
        all += chains[i].step;
    return all;
}

static void open_all(void)
{
    void *module, *pointer;
    address_t wrong;
    uint64_t zeros[CHAINS] = {0};
    cuda(cuModuleLoadData(&module, PTX), "cuModuleLoadData");
    kernel = kernel_of(module, "step");
    cuda(cuMemAlloc(&video_at, CHAINS * 2 * WORDS * 4u), "cuMemAlloc");
    cuda(cuMemHostAlloc(&pointer, CHAINS * WORDS * 4u, 0), "cuMemHostAlloc");
    cuda(cuMemAlloc(&wrong, sizeof zeros), "cuMemAlloc");
    cuda(cuMemcpyHtoD(wrong, zeros, sizeof zeros), "cuMemcpyHtoD");
    host_at = pointer;
    open_session(THREADS, 0);
    video = pinned((void *)(uintptr_t)video_at, CHAINS * 2 * WORDS * 4u);
    host = pinned(pointer, CHAINS * WORDS * 4u);
    for (unsigned i = 0; i < CHAINS; i++) {
        chains[i].number = i;
        chains[i].wrong = wrong + 8 * i;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        struct thread *t = &threads[i];
        t->number = i;
        t->chain = &chains[i < ALONE ? i : ALONE + (i - ALONE) / 2];
        t->turns = i < ALONE ? 1 : 2;
        t->turn = i < ALONE ? 0 : (i - ALONE) % 2;
        cuda(cuStreamCreate(&t->stream, 1), "cuStreamCreate");
    }
    for (unsigned i = 0; i < THREADS; i++)
        threads[i].other = i < ALONE ? threads[i].stream : threads[ALONE + ((i - ALONE) ^ 1)].stream;
}

static int usage(void)
{
    fprintf(stderr, "usage: ordered [copies] [--seconds N] [--without-order both|copy|stream]\n");
    return 2;
}

int main(int argc, char **argv)
{
    unsigned long all = 1000000;
    double limit = 100;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (argv[i][0] != '-') {
            all = strtoul(argv[i], NULL, 10);
            continue;
        }
        if (!value)
            return usage();
        i++;
        if (!strcmp(argv[i - 1], "--seconds"))
            limit = strtod(value, NULL);
        else if (!strcmp(argv[i - 1], "--without-order") && (!strcmp(value, "both") || !strcmp(value, "copy") || !strcmp(value, "stream"))) {
            copies_wait = !strcmp(value, "stream");
            streams_wait = !strcmp(value, "copy");
        } else
            return usage();
    }
    begin_beside_cuda("there are no streams to be ordered against");
    open_all();
    end_at_signals();

    for (unsigned i = 0; i < CHAINS; i++)
        chains[i].steps = all / CHAINS + (i < all % CHAINS);
    uint64_t start = now();
    for (unsigned i = 0; i < THREADS; i++) {
        /* What the first step copies: of a pair, on the stream that its first copy waits for. */
        if (threads[i].turn == 0)
            launch(&threads[i], threads[i].other, 0, 1);
    }
    for (unsigned i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i].id, NULL, work, &threads[i]) != 0)
            return 1;
    uint64_t told = start;
    for (unsigned long done; !stop && (done = copied()) < all;) {
        struct timespec rest = {0, 5000000};
        nanosleep(&rest, NULL);
        uint64_t at = now();
        if ((double)(at - start) > limit * 1e9)
            stop = 1;
        if (at - told > UINT64_C(5000000000)) {
            told = at;
            printf("%5.1f s: %lu copies\n", (double)(at - start) / 1e9, copied());
        }
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
    cuda(cuCtxSynchronize(), "cuCtxSynchronize");
    for (unsigned i = 0; i < CHAINS; i++)
        for (unsigned long n = chains[i].step > DEPTH ? chains[i].step - DEPTH : 0; n < chains[i].step; n++)
            check(doorbell_wait(doorbell, chains[i].last[n % DEPTH], PATIENCE), "wait");
    double seconds = (double)(now() - start) / 1e9;

    unsigned long copies = 0, kernels = 0, again = 0;
    uint64_t mismatches = 0, wrong[CHAINS];
    cuda(cuMemcpyDtoH(wrong, chains[0].wrong, sizeof wrong), "cuMemcpyDtoH");
    printf("%-7s %-10s %10s %10s %12s %11s %9s %10s\n", "chain", "threads", "copies", "kernels", "wrong words", "tried again",
           "seconds", "copies/s");
    for (unsigned c = 0; c < CHAINS; c++) {
        unsigned long of[3] = {0};
        char who[16] = "";
        for (unsigned i = 0; i < THREADS; i++) {
            if (threads[i].chain != &chains[c])
                continue;
            of[0] += threads[i].copies;
            of[1] += threads[i].kernels;
            of[2] += threads[i].again;
            snprintf(who + strlen(who), sizeof who - strlen(who), who[0] ? " and %u" : "%u", i);
        }
        printf("%-7u %-10s %10lu %10lu %12" PRIu64 " %11lu %9.2f %10.0f\n", c, who, of[0], of[1], wrong[c], of[2], seconds,
               (double)of[0] / seconds);
        copies += of[0];
        kernels += of[1];
        again += of[2];
        mismatches += wrong[c];
    }
    printf("%-7s %-10s %10lu %10lu %12" PRIu64 " %11lu %9.2f %10.0f\n", "all", "8", copies, kernels, mismatches, again, seconds,
           (double)copies / seconds);
    if (copies < all)
        printf("stopped after %.1f s, before all %lu copies\n", seconds, all);
    check(doorbell_free(doorbell), "doorbell_free");
    if (!copies_wait || !streams_wait) {
        printf("without order there %s\n", mismatches ? "are mismatches, as there must be" : "is no mismatch: the test sees nothing");
        return mismatches == 0;
    }
    printf("%s\n", mismatches ? "MISMATCHES" : "every word right");
    return mismatches != 0;
}
