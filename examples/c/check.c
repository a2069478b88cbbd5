/* Is every byte right, and what does a submission cost? 8 threads copy 8 bytes to 1 MiB to the GPU and back, and compare.
 *
 *   crates/gpu/libdoorbell/install.sh --prefix target/prefix
 *   cc -O2 -pthread examples/c/check.c -o target/prefix/check -Itarget/prefix/include -Ltarget/prefix/lib \
 *      -Wl,-rpath,'$ORIGIN/lib' -ldoorbell -ldl
 *   target/prefix/check [verified copies in all, 10000]
 *
 * With libcuda it runs beside CUDA: cudaMalloc's and cudaHostAlloc's memory (cuMemAlloc, cuMemHostAlloc), pinned. Without it, it
 * runs on the software GPU, which has to be preloaded, with memory of doorbell's own. With DOORBELL_PROFILE (doorbell calibrate -o FILE)
 * copies go the way that the profile says. Exit status 0: every byte was right. */
#define _GNU_SOURCE
#include "driver_api.h"
#include "samples.h"
#include <pthread.h>

enum { THREADS = 8, LARGEST = 1 << 20, SIZES = 18 };

/* Other bytes with each seed. */
static void fill(unsigned char *to, size_t bytes, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    for (size_t i = 0; i < bytes; i++) {
        if (i % 8 == 0) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        to[i] = (unsigned char)(state >> 8 * (i % 8));
    }
}

struct memory { doorbell_buffer_t host, device; unsigned char *data, *back; };

static struct memory allocate(int with_cuda)
{
    struct memory m;
    void *host = NULL;
    if (with_cuda) {
        unsigned long long device;
        cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
        cuda(cuMemHostAlloc(&host, 2 * LARGEST, 0), "cuMemHostAlloc");
        cuda(cuMemAlloc(&device, LARGEST), "cuMemAlloc");
        m.host = pinned(host, 2 * LARGEST);
        m.device = pinned((void *)(uintptr_t)device, LARGEST);
    } else {
        check(doorbell_buffer_create(doorbell, DOORBELL_HOST, 2 * LARGEST, &m.host, &host), "allocate host memory");
        check(doorbell_buffer_create(doorbell, DOORBELL_VIDEO, LARGEST, &m.device, NULL), "allocate GPU memory");
    }
    m.data = host;
    m.back = m.data + LARGEST;
    return m;
}

static int with_cuda;
static unsigned long copies_each;

struct thread { pthread_t id; unsigned number; unsigned long verified, tried_again; struct samples submits, asyncs; };

/* Submits what was prepared, or else what is written at once, again where another thread has the lane at this moment. */
static doorbell_ticket_t submitted(struct thread *t, doorbell_transfer_t transfer, const doorbell_piece_t *piece)
{
    doorbell_ticket_t ticket = 0;
    for (;;) {
        uint64_t start = now();
        int code = transfer ? doorbell_transfer_async(doorbell, transfer, NULL, &ticket)
                            : doorbell_copy_async(doorbell, piece->to, piece->to_offset, piece->from, piece->from_offset, piece->bytes, NULL, &ticket);
        uint64_t end = now();
        if (code == DOORBELL_OK) {
            add(transfer ? &t->submits : &t->asyncs, end - start);
            return ticket;
        }
        if (code != DOORBELL_BUSY && code != DOORBELL_FULL)
            check(code, transfer ? "submit" : "copy_async");
        t->tried_again++;
    }
}

static void *work(void *argument)
{
    struct thread *t = argument;
    struct memory m = allocate(with_cuda);
    doorbell_transfer_t down[SIZES], up[SIZES];
    for (int i = 0; i < SIZES; i++) {
        check(doorbell_transfer_create(doorbell, m.device, 0, m.host, 0, UINT64_C(8) << i, &down[i]), "prepare");
        check(doorbell_transfer_create(doorbell, m.host, LARGEST, m.device, 0, UINT64_C(8) << i, &up[i]), "prepare");
    }
    for (unsigned long round = 0; t->verified < copies_each; round++) {
        int i = (int)(round % SIZES);
        size_t bytes = (size_t)8 << i;
        fill(m.data, bytes, (uint64_t)t->number << 32 | round);
        memset(m.back, 0, bytes);
        /* What was prepared, and what is written when it is submitted, in turn. */
        int prepared = round / SIZES % 2 == 0;
        doorbell_piece_t there = {m.device, 0, m.host, 0, bytes}, back = {m.host, LARGEST, m.device, 0, bytes};
        check(doorbell_wait(doorbell, submitted(t, prepared ? down[i] : 0, &there), PATIENCE), "wait");
        check(doorbell_wait(doorbell, submitted(t, prepared ? up[i] : 0, &back), PATIENCE), "wait");
        if (memcmp(m.data, m.back, bytes) != 0) {
            fprintf(stderr, "thread %u, round %lu: %zu bytes came back wrong\n", t->number, round, bytes);
            exit(1);
        }
        t->verified += 2;
    }
    return NULL;
}

static void report(void *user, const char *text)
{
    (void)user;
    printf("doorbell: %s\n", text);
}

static struct thread threads[THREADS];
static struct samples one, pair, done[2];

int main(int argc, char **argv)
{
    unsigned long all = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    copies_each = all / THREADS > 0 ? all / THREADS : 1;
    /* Before CUDA is initialised: from now on its calls to the kernel driver are seen. */
    int watching = doorbell_init();
    with_cuda = load_cuda();
    if (with_cuda) {
        check(watching, "doorbell_init");
        open_context();
    }
    doorbell_options_t options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.lanes = THREADS;
    options.log = report;
    check(doorbell_create(&options, &doorbell), "doorbell_create");

    for (unsigned i = 0; i < THREADS; i++) {
        threads[i].number = i;
        if (pthread_create(&threads[i].id, NULL, work, &threads[i]) != 0)
            return 1;
    }
    unsigned long verified = 0, again = 0;
    struct samples submits[2] = {{0}};
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i].id, NULL);
        verified += threads[i].verified;
        again += threads[i].tried_again;
        for (size_t n = 0; n < threads[i].submits.count; n++)
            add(&submits[0], threads[i].submits.ns[n]);
        for (size_t n = 0; n < threads[i].asyncs.count; n++)
            add(&submits[1], threads[i].asyncs.ns[n]);
    }
    printf("%lu copies by %d threads, every byte right; %lu submissions were tried again\n", verified, THREADS, again);
    say("submit, 8 threads", &submits[0]);
    say("copy_async, 8 threads", &submits[1]);

    /* Which way prepared copies go: with DOORBELL_PROFILE set, as it says. */
    struct memory m = allocate(with_cuda);
    for (int i = 0; i < SIZES; i += 3) {
        char why[512];
        check(doorbell_copy_explain(doorbell, m.device, m.host, UINT64_C(8) << i, true, NULL, why, sizeof why), "explain");
        printf("%7lu bytes to the GPU: %s\n", 8ul << i, why);
    }

    /* Alone, 8 bytes. */
    doorbell_transfer_t alone[2];
    check(doorbell_transfer_create(doorbell, m.device, 0, m.host, 0, 8, &alone[0]), "prepare");
    check(doorbell_transfer_create(doorbell, m.host, LARGEST, m.device, 0, 8, &alone[1]), "prepare");
    for (unsigned long round = 0; round < copies_each * 2; round++) {
        doorbell_ticket_t ticket;
        fill(m.data, 8, round);
        for (int way = 0; way < 2; way++) {
            uint64_t start = now(), middle = now();
            check(doorbell_transfer_async(doorbell, alone[way], NULL, &ticket), "submit");
            uint64_t end = now();
            check(doorbell_wait(doorbell, ticket, PATIENCE), "wait");
            add(&done[way], now() - middle);
            add(&one, end - middle);
            add(&pair, middle - start);
        }
        if (memcmp(m.data, m.back, 8) != 0) {
            fprintf(stderr, "alone, round %lu: wrong\n", round);
            return 1;
        }
    }
    say("reading the clock twice", &pair);
    say("submit, alone, with the clock", &one);
    say("8 B to the GPU, submit and wait", &done[0]);
    say("8 B from the GPU, submit and wait", &done[1]);
    check(doorbell_free(doorbell), "doorbell_free");
    return 0;
}
