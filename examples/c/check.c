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
#include <inttypes.h>
#include <pthread.h>

static doorbell_t *doorbell;

enum { THREADS = 8, LARGEST = 1 << 20, SIZES = 18, SAMPLES = 20000 };
#define PATIENCE UINT64_C(10000000000)

/* The part of the CUDA driver API that is needed. */
static int (*cuInit)(unsigned);
static int (*cuDeviceGet)(int *, int);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc)(unsigned long long *, size_t);
static int (*cuMemHostAlloc)(void **, size_t, unsigned);
static void *context;

static int load_cuda(void)
{
    const struct function functions[] = {
        {&cuInit, "cuInit"}, {&cuDeviceGet, "cuDeviceGet"}, {&cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"},
        {&cuCtxSetCurrent, "cuCtxSetCurrent"}, {&cuMemAlloc, "cuMemAlloc_v2"}, {&cuMemHostAlloc, "cuMemHostAlloc"},
    };
    return load_functions(functions, sizeof functions / sizeof *functions);
}

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

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

struct samples { size_t count; uint64_t ns[SAMPLES]; };

static void add(struct samples *to, uint64_t ns)
{
    if (to->count < SAMPLES)
        to->ns[to->count++] = ns;
}

static void say(const char *what, struct samples *s)
{
    if (s->count == 0)
        return;
    qsort(s->ns, s->count, sizeof *s->ns, by_value);
    printf("%-34s %6zu samples, p50 %6" PRIu64 " ns, p99 %7" PRIu64 " ns, max %9" PRIu64 " ns\n", what, s->count,
           s->ns[s->count / 2], s->ns[s->count - s->count / 100 - 1], s->ns[s->count - 1]);
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
        check(doorbell_buffer_register(doorbell, host, 2 * LARGEST, &m.host), "pin host memory");
        check(doorbell_buffer_register(doorbell, (void *)(uintptr_t)device, LARGEST, &m.device), "pin GPU memory");
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

/* Submits, again where another thread has the lane at this moment. */
static doorbell_ticket_t submitted(struct thread *t, doorbell_transfer_t transfer)
{
    doorbell_ticket_t ticket = 0;
    for (;;) {
        uint64_t start = now();
        int code = doorbell_transfer_async(doorbell, transfer, NULL, &ticket);
        uint64_t end = now();
        if (code == DOORBELL_OK) {
            add(&t->submits, end - start);
            return ticket;
        }
        if (code != DOORBELL_BUSY && code != DOORBELL_FULL)
            check(code, "submit");
        t->tried_again++;
    }
}

static doorbell_ticket_t asked(struct thread *t, doorbell_buffer_t to, uint64_t to_at, doorbell_buffer_t from, uint64_t from_at,
                               uint64_t bytes)
{
    doorbell_ticket_t ticket = 0;
    for (;;) {
        uint64_t start = now();
        int code = doorbell_copy_async(doorbell, to, to_at, from, from_at, bytes, NULL, &ticket);
        uint64_t end = now();
        if (code == DOORBELL_OK) {
            add(&t->asyncs, end - start);
            return ticket;
        }
        if (code != DOORBELL_BUSY && code != DOORBELL_FULL)
            check(code, "copy_async");
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
        if (round / SIZES % 2 == 0) {
            check(doorbell_wait(doorbell, submitted(t, down[i]), PATIENCE), "wait");
            check(doorbell_wait(doorbell, submitted(t, up[i]), PATIENCE), "wait");
        } else {
            check(doorbell_wait(doorbell, asked(t, m.device, 0, m.host, 0, bytes), PATIENCE), "wait");
            check(doorbell_wait(doorbell, asked(t, m.host, LARGEST, m.device, 0, bytes), PATIENCE), "wait");
        }
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
        int device;
        check(watching, "doorbell_init");
        cuda(cuInit(0), "cuInit");
        cuda(cuDeviceGet(&device, 0), "cuDeviceGet");
        cuda(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
        cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
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
    struct samples *submits = calloc(2, sizeof *submits);
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
    free(submits);
    return 0;
}
