/* Who delays a copy? 4 KiB to the GPU, by CUDA and by libdoorbell in turns, beside threads of the same program that load modules,
 * allocate GPU memory or pinned host memory, register host memory, create streams or instantiate graphs.
 *
 *   crates/gpu/libdoorbell/install.sh --prefix target/prefix
 *   cc -O2 -pthread examples/c/undelayed.c -o target/prefix/undelayed -Itarget/prefix/include -Ltarget/prefix/lib \
 *      -Wl,-rpath,'$ORIGIN/lib' -ldoorbell -ldl
 *   target/prefix/undelayed --rounds 2 --json undelayed.json
 *
 * A turn has one kind of neighbour, or none. In slices that take turns it has --turn / 2 seconds of libdoorbell's prepared copy
 * (submit and wait), as long of CUDA's (cuMemcpyHtoDAsync and cuStreamSynchronize), and --turn / 8 each of libdoorbell's set-up
 * calls. A call that began in time is waited for. After --patience seconds in one call the neighbours pause, so that it returns:
 * such a row is marked with >. "nothing" comes first, in the middle and last of each round, so both sides of a difference are of
 * one run. The bytes are others each time. One copy of 64 is copied back and compared, and the last of each turn is read through
 * CUDA.
 *
 * Without libcuda there are no neighbours and no copies of CUDA's. With --software it runs on the software GPU, which has to be
 * preloaded. Exit status 0: every byte was right; 1: some were not; 2: an error. SIGINT ends it with what it has. */
#define _GNU_SOURCE
#include "driver_api.h"
#include "neighbours.h"
#include "samples.h"
#include <getopt.h>
#include <sched.h>

enum { MOST_THREADS = 128, MOST_COUNTS = 8, COMPARE = 64, MOST_COPIES = 20000 };
#define PIECE ((size_t)1 << 20)  /* what is pinned, and the largest copy */
#define WITHIN 10000 /* ns */

/* ---- What is measured ---- */

enum series { CUDA, OURS, SUBMIT, PIN_DEVICE, PIN_HOST, UNPIN, PREPARE, RELEASE, SERIES };
static const char *const series_names[SERIES] = {"cuda", "doorbell", "submit", "pin_device", "pin_host", "unpin", "prepare", "release"};

struct row { enum kind kind; unsigned threads, turns, cut[SERIES]; uint64_t done, longest; struct samples of[SERIES]; };

static struct { double turn, patience; unsigned rounds, counts, count[MOST_COUNTS]; size_t bytes; int software; double seconds;
    unsigned kinds; const char *json, *raw; } options = {.turn = 1, .patience = 1, .rounds = 2, .bytes = 4096, 
    .kinds = (1u << KINDS) - 1};

static int with_cuda, on_cudas_memory;
static FILE *raw;
static unsigned long compared, wrong;
static doorbell_buffer_t host, device;
static unsigned char *data, *back;          /* within host */
static unsigned long long device_address;   /* 0: not CUDA's */
static doorbell_transfer_t down, up;
static unsigned char *cuda_data;
static unsigned long long cuda_device;
static void *cuda_stream;
static unsigned char *pool_host;
static unsigned long long pool_device;

/* Other bytes each time. */
static void renew(unsigned char *to, size_t bytes)
{
    static uint64_t times;
    uint64_t state = ++times * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word = state + i * UINT64_C(0xd1342543de82ef95);
        memcpy(to + i, &word, 8);
    }
    for (size_t i = bytes / 8 * 8; i < bytes; i++)
        to[i] = (unsigned char)(state >> 8 * (i % 8));
}

static void compare(const void *found, const void *meant, const char *what)
{
    compared++;
    if (memcmp(found, meant, options.bytes) != 0) {
        wrong++;
        fprintf(stderr, "WRONG: bytes of %s\n", what);
    }
}

static void copy_back(void)
{
    doorbell_ticket_t ticket;
    memset(back, 0, options.bytes);
    check(doorbell_transfer_async(doorbell, up, NULL, &ticket), "submit");
    check(doorbell_wait(doorbell, ticket, PATIENCE), "wait");
    compare(back, data, "libdoorbell's copy, as libdoorbell reads them");
}

/* Before a call that may wait for the neighbours. */
static uint64_t patient(void)
{
    uint64_t at = now();
    atomic_store_explicit(&pause_at, at + (uint64_t)(options.patience * 1e9), memory_order_relaxed);
    return at;
}

/* How long such a call took. */
static void took(struct row *row, enum series series, uint64_t from, uint64_t to)
{
    add(&row->of[series], to - from);
    row->cut[series] += row->threads > 0 && (double)(to - from) >= options.patience * 1e9;
}

/* The neighbours go on. */
static void resume(void)
{
    int paused = now() >= pause_at;
    pause_at = UINT64_MAX;
    if (paused)
        usleep(1000);
}

/* Each slice goes on for so long and says how long it was. */

static uint64_t slice_ours(struct row *row, uint64_t length)
{
    static unsigned long times;
    uint64_t start = now(), end = start;
    while (end - start < length && !stop) {
        doorbell_ticket_t ticket;
        renew(data, options.bytes);
        uint64_t before = now();
        check(doorbell_transfer_async(doorbell, down, NULL, &ticket), "submit");
        uint64_t middle = now();
        check(doorbell_wait(doorbell, ticket, PATIENCE), "wait");
        end = now();
        add(&row->of[SUBMIT], middle - before);
        add(&row->of[OURS], end - before);
        if (++times % COMPARE == 0)
            copy_back();
    }
    return end - start;
}

/* No more than so many copies: there may be a very long one among them. */
static uint64_t slice_cuda(struct row *row, uint64_t length)
{
    uint64_t start = now(), end = start;
    for (size_t n = 0; n < MOST_COPIES && end - start < length && !stop; n++) {
        renew(cuda_data, options.bytes);
        uint64_t before = patient();
        cuda(cuMemcpyHtoDAsync(cuda_device, cuda_data, options.bytes, cuda_stream), "cuMemcpyHtoDAsync");
        cuda(cuStreamSynchronize(cuda_stream), "cuStreamSynchronize");
        end = now();
        took(row, CUDA, before, end);
    }
    resume();
    return end - start;
}

/* Another piece of the memory each time. */
static uint64_t slice_pin(struct row *row, uint64_t length)
{
    static size_t piece;
    uint64_t start = now(), end = start;
    while (end - start < length && !stop) {
        size_t at = piece++ / 2 % (BLOCK / PIECE) * PIECE;
        int place = (int)(piece % 2);
        doorbell_buffer_t pinned;
        uint64_t before = patient();
        check(doorbell_buffer_register(doorbell, place ? (void *)(uintptr_t)(pool_device + at) : pool_host + at, PIECE, &pinned), "pin");
        uint64_t middle = patient();
        check(doorbell_buffer_free(doorbell, pinned), "unpin");
        end = now();
        took(row, place ? PIN_DEVICE : PIN_HOST, before, middle);
        took(row, UNPIN, middle, end);
    }
    resume();
    return end - start;
}

static uint64_t slice_prepare(struct row *row, uint64_t length)
{
    uint64_t start = now(), end = start;
    while (end - start < length && !stop) {
        doorbell_transfer_t transfer;
        uint64_t before = patient();
        check(doorbell_transfer_create(doorbell, device, 0, host, 0, options.bytes, &transfer), "prepare");
        uint64_t middle = patient();
        check(doorbell_transfer_free(doorbell, transfer), "release");
        end = now();
        took(row, PREPARE, before, middle);
        took(row, RELEASE, middle, end);
    }
    resume();
    return end - start;
}

static void write_raw(const struct row *row, unsigned round, const size_t *from)
{
    for (int s = 0; raw && s < SERIES; s++) {
        size_t count = row->of[s].count - from[s];
        struct samples part = {0};
        for (size_t i = 0; i < count; i++)
            add(&part, row->of[s].ns[from[s] + i]);
        if (count == 0)
            continue;
        sorted(&part);
        fprintf(raw, "%u %s %u %s", round, names[row->kind], row->threads, series_names[s]);
        for (size_t i = 0, times; i < count; i += times) {
            for (times = 1; i + times < count && part.ns[i + times] == part.ns[i];)
                times++;
            fprintf(raw, times > 1 ? " %" PRIu64 "*%zu" : " %" PRIu64, part.ns[i], times);
        }
        fprintf(raw, "\n");
        free(part.ns);
    }
    if (raw)
        fflush(raw);
}

static void turn(struct row *row, unsigned round, const pthread_attr_t *elsewhere)
{
    static struct neighbour neighbours[MOST_THREADS];
    uint64_t length = (uint64_t)(options.turn * 1e9);
    const struct { uint64_t (*slice)(struct row *, uint64_t); uint64_t all, one; int possible; } parts[] = {
        {slice_ours, length / 2, length / 8, 1}, {slice_prepare, length / 8, length / 16, 1},
        {slice_cuda, length / 2, length / 8, with_cuda}, {slice_pin, length / 8, length / 16, on_cudas_memory}};
    uint64_t spent[4] = {0, 0, 0, 0};
    size_t from[SERIES];
    for (int s = 0; s < SERIES; s++)
        from[s] = row->of[s].count;
    memset(neighbours, 0, sizeof neighbours);
    ended = 0;
    pause_at = UINT64_MAX;
    pthread_barrier_init(&all_ready, NULL, row->threads + 1);
    for (unsigned i = 0; i < row->threads; i++) {
        static unsigned number;
        neighbours[i].kind = row->kind;
        neighbours[i].number = number++;
        if (pthread_create(&neighbours[i].id, elsewhere, neighbour, &neighbours[i]) != 0) {
            perror("pthread_create");
            exit(2);
        }
    }
    pthread_barrier_wait(&all_ready);
    for (int goes_on = 1; goes_on && !stop;) {
        goes_on = 0;
        for (int p = 0; p < 4; p++)
            if (parts[p].possible && spent[p] < parts[p].all) {
                spent[p] += parts[p].slice(row, parts[p].one);
                goes_on = 1;
            }
    }
    ended = 1;
    for (unsigned i = 0; i < row->threads; i++) {
        pthread_join(neighbours[i].id, NULL);
        row->done += neighbours[i].done;
        row->longest = neighbours[i].longest > row->longest ? neighbours[i].longest : row->longest;
        if (neighbours[i].status)
            fprintf(stderr, "a neighbour ended: %s: CUDA error %d\n", neighbours[i].refused, neighbours[i].status);
    }
    pthread_barrier_destroy(&all_ready);
    row->turns++;
    if (with_cuda && row->of[CUDA].count > from[CUDA]) {
        cuda(cuMemcpyDtoH(back, cuda_device, options.bytes), "cuMemcpyDtoH");
        compare(back, cuda_data, "CUDA's copy");
    }
    if (device_address && row->of[OURS].count > from[OURS]) {
        cuda(cuMemcpyDtoH(back, device_address, options.bytes), "cuMemcpyDtoH");
        compare(back, data, "libdoorbell's copy, as CUDA reads them");
    }
    write_raw(row, round, from);
}

/* ---- What is said ---- */

static void label(const struct row *row, char *to, size_t room)
{
    snprintf(to, room, row->threads ? "%u %s" : "%.0u%s", row->threads, names[row->kind]);
}

/* The largest, marked where it ended because the neighbours paused. */
static const char *longest(const struct row *row, enum series series)
{
    static char marked[8][32];
    static unsigned next;
    char *to = marked[next++ % 8];
    snprintf(to, sizeof *marked, "%s%s", row->cut[series] ? ">" : "", text(most(&row->of[series])));
    return to;
}

static void print_tables(struct row *rows, size_t count)
{
    const struct samples *nothing = &rows[0].of[OURS];
    printf("\n%-12s|%7s %8s | CUDA:%6s %8s %8s %9s | ours:%7s %8s %8s %8s %8s %11s\n", "beside", "calls", "longest", "n", "p50", "p99",
           "max", "n", "p50", "p99", "p99.9", "max", "more p99.9");
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        const struct samples *c = &row->of[CUDA], *o = &row->of[OURS];
        char of[32], calls_done[32] = "-", more[32] = "-";
        label(row, of, sizeof of);
        if (row->threads)
            snprintf(calls_done, sizeof calls_done, "%" PRIu64, row->done);
        if (i > 0 && p999(o) && p999(nothing))
            snprintf(more, sizeof more, "%+.2f us", ((double)p999(o) - (double)p999(nothing)) / 1000);
        printf("%-12s|%7s %8s | %11zu %8s %8s %9s | %12zu %8s %8s %8s %8s %11s\n", of, calls_done, text(row->longest), c->count,
               text(p50(c)), text(p99(c)), longest(row, CUDA), o->count, text(p50(o)), text(p99(o)), text(p999(o)), text(most(o)), more);
    }
    printf(">: at least, the neighbours had to pause. -: fewer than ten samples lie beyond it, or none is there.\n"
           "\n%-12s| submit:%8s %8s | pin GPU's:%6s %8s %9s | host's:%8s %9s | unpin:%8s %9s | prepare:%6s %8s %9s | release:%8s %9s\n",
           "beside", "p50", "p99.9", "n", "p50", "max", "p50", "max", "p50", "max", "n", "p50", "max", "p50", "max");
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        const struct samples *of = row->of;
        char name[32];
        label(row, name, sizeof name);
        printf("%-12s| %15s %8s | %16zu %8s %9s | %15s %9s | %14s %9s | %14zu %8s %9s | %16s %9s\n", name, text(p50(&of[SUBMIT])),
               text(p999(&of[SUBMIT])), of[PIN_DEVICE].count, text(p50(&of[PIN_DEVICE])), longest(row, PIN_DEVICE),
               text(p50(&of[PIN_HOST])), longest(row, PIN_HOST), text(p50(&of[UNPIN])), longest(row, UNPIN), of[PREPARE].count,
               text(p50(&of[PREPARE])), longest(row, PREPARE), text(p50(&of[RELEASE])), longest(row, RELEASE));
    }
}

static void print_verdict(struct row *rows, size_t count)
{
    const uint64_t nothing = p999(&rows[0].of[OURS]);
    unsigned within = 0, judged = 0, few = 0;
    char others[1024] = "";
    size_t at = 0;
    for (size_t i = 1; i < count; i++) {
        const uint64_t here = p999(&rows[i].of[OURS]);
        char of[32];
        label(&rows[i], of, sizeof of);
        if (!nothing || !here) {
            few += rows[i].turns > 0;
            continue;
        }
        judged++;
        if (here <= nothing + WITHIN)
            within++;
        else if (at < sizeof others)
            at += (size_t)snprintf(others + at, sizeof others - at, "%s%s (%+.1f us)", at ? ", " : "; not beside ", of,
                                   ((double)here - (double)nothing) / 1000);
    }
    printf("\nverdict: libdoorbell's p99.9 within 10 us of its p99.9 beside nothing (%s): %u of %u%s", text(nothing), within, judged, others);
    if (few)
        printf("; too few samples beside %u", few);
    printf("\n%lu copies compared, %lu wrong\n", compared, wrong);
}

static void write_json(struct row *rows, size_t count)
{
    FILE *to = fopen(options.json, "w");
    if (!to) {
        perror(options.json);
        exit(2);
    }
    fprintf(to, "{\"program\": \"undelayed.c\", \"turn_s\": %g, \"bytes\": %zu, \"cuda\": %s, \"software\": %s, \"compared\": %lu, "
            "\"wrong\": %lu, \"unit\": \"ns\", \"rows\": [", options.turn, options.bytes, with_cuda ? "true" : "false",
            options.software ? "true" : "false", compared, wrong);
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        fprintf(to, "%s\n {\"beside\": \"%s\", \"threads\": %u, \"turns\": %u, \"calls\": %" PRIu64 ", \"longest\": %" PRIu64
                , i ? "," : "", names[row->kind], row->threads, row->turns, row->done, row->longest);
        for (int s = 0; s < SERIES; s++) {
            const struct samples *of = &row->of[s];
            const struct { const char *name; uint64_t value; } figures[] = {{"p50", p50(of)}, {"p90", percentile(of, 9, 10)},
                {"p99", p99(of)}, {"p99.9", p999(of)}, {"p99.99", percentile(of, 9999, 10000)}, {"max", most(of)}};
            fprintf(to, ",\n  \"%s\": {\"samples\": %zu, \"paused\": %u", series_names[s], of->count, row->cut[s]);
            for (size_t f = 0; f < sizeof figures / sizeof *figures; f++)
                if (figures[f].value)
                    fprintf(to, ", \"%s\": %" PRIu64, figures[f].name, figures[f].value);
            fprintf(to, "}");
        }
        fprintf(to, "}");
    }
    fprintf(to, "\n]}\n");
    fclose(to);
}

/* ---- Set up ---- */

static void open_all(void)
{
    if (with_cuda)
        open_context();
    doorbell_options_t how = {.size = sizeof how, .lanes = 1, .kind = options.software ? DOORBELL_SOFTWARE : DOORBELL_ANY};
    check(doorbell_create(&how, &doorbell), "doorbell_create");
    on_cudas_memory = with_cuda && !options.software;
    void *memory = NULL;
    if (with_cuda) {
        cuda(cuMemHostAlloc(&memory, 2 * PIECE, 0), "cuMemHostAlloc");
        cuda_data = memory;
        cuda(cuMemAlloc(&cuda_device, 2 * PIECE), "cuMemAlloc");
        cuda(cuStreamCreate(&cuda_stream, 1), "cuStreamCreate");
    }
    if (on_cudas_memory) {
        cuda(cuMemHostAlloc(&memory, 2 * PIECE, 0), "cuMemHostAlloc");
        cuda(cuMemAlloc(&device_address, 2 * PIECE), "cuMemAlloc");
        host = pinned(memory, 2 * options.bytes);
        device = pinned((void *)(uintptr_t)device_address, options.bytes);
        data = memory;
        cuda(cuMemHostAlloc(&memory, BLOCK, 0), "cuMemHostAlloc");
        pool_host = memory;
        cuda(cuMemAlloc(&pool_device, BLOCK), "cuMemAlloc");
    } else {
        check(doorbell_buffer_create(doorbell, DOORBELL_HOST, 2 * options.bytes, &host, &memory), "allocate host memory");
        check(doorbell_buffer_create(doorbell, DOORBELL_VIDEO, options.bytes, &device, NULL), "allocate GPU memory");
        data = memory;
    }
    back = data + options.bytes;
    check(doorbell_transfer_create(doorbell, device, 0, host, 0, options.bytes, &down), "prepare");
    check(doorbell_transfer_create(doorbell, host, options.bytes, device, 0, options.bytes, &up), "prepare");
}

static void usage(int status)
{
    fprintf(status ? stderr : stdout,
            "usage: undelayed [--turn SECONDS, 1] [--patience SECONDS, 1] [--rounds N, 2] [--seconds IN ALL, no limit] [--threads LIST, 1,10]\n"
            "       [--kinds LIST of module,device,pinned,register,stream,graph] [--bytes N, 4096]\n"
            "       [--software] [--json FILE] [--raw FILE]\n");
    exit(status);
}

static void read_list(char *list, int kinds)
{
    if (kinds)
        options.kinds = 1;
    for (char *rest = NULL, *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int kind = 1;
        if (!kinds) {
            unsigned long threads = strtoul(word, NULL, 10);
            if (threads < 1 || threads > MOST_THREADS || options.counts == MOST_COUNTS)
                usage(2);
            options.count[options.counts++] = (unsigned)threads;
            continue;
        }
        while (kind < KINDS && strcmp(word, names[kind]) != 0)
            kind++;
        if (kind == KINDS)
            usage(2);
        options.kinds |= 1u << kind;
    }
}

static void read_options(int argc, char **argv)
{
    enum { TURN, WAITS, ROUNDS, SECONDS, THREADS, WHICH, BYTES, SOFTWARE, JSON, RAW, HELP };
    static const struct option known[] = {{"turn", 1, 0, TURN}, {"patience", 1, 0, WAITS}, {"rounds", 1, 0, ROUNDS}, {"seconds", 1, 0, SECONDS},
        {"threads", 1, 0, THREADS}, {"kinds", 1, 0, WHICH}, {"bytes", 1, 0, BYTES}, 
        {"software", 0, 0, SOFTWARE}, {"json", 1, 0, JSON}, {"raw", 1, 0, RAW}, {"help", 0, 0, HELP}, {0, 0, 0, 0}};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;)
        switch (option) {
        case TURN: options.turn = atof(optarg); break;
        case WAITS: options.patience = atof(optarg); break;
        case ROUNDS: options.rounds = (unsigned)strtoul(optarg, NULL, 10); break;
        case SECONDS: options.seconds = atof(optarg); break;
        case THREADS: read_list(optarg, 0); break;
        case WHICH: read_list(optarg, 1); break;
        case BYTES: options.bytes = strtoul(optarg, NULL, 10); break;
        case SOFTWARE: options.software = 1; break;
        case JSON: options.json = optarg; break;
        case RAW: options.raw = optarg; break;
        default: usage(option == HELP ? 0 : 2);
        }
    if (optind != argc || options.turn <= 0 || options.turn > 60 || options.patience <= 0 || options.rounds == 0 || options.bytes == 0 || options.bytes > PIECE)
        usage(2);
    if (options.counts == 0) {
        options.count[0] = 1;
        options.count[1] = 10;
        options.counts = 2;
    }
}

int main(int argc, char **argv)
{
    error_status = 2;
    read_options(argc, argv);
    const uint64_t begin = now();
    /* Each load compiles: nothing comes from the driver's cache on disk. */
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Before CUDA is initialised: from now on its calls to the kernel driver are seen. */
    int watching = options.software ? DOORBELL_OK : doorbell_init();
    with_cuda = load_cuda();
    if (with_cuda)
        check(watching, "doorbell_init");
    else
        printf("skipped: no libcuda.so.1, so no neighbours and no copies of CUDA's\n");

    /* What measures has a CPU of its own, the last; threads of CUDA's and neighbours have the others. */
    cpu_set_t all, one, others;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof all, &all);
    int cpu = CPU_SETSIZE - 1;
    while (cpu > 0 && !CPU_ISSET(cpu, &all))
        cpu--;
    CPU_SET(cpu, &one);
    CPU_XOR(&others, &all, &one);
    CPU_AND(&others, &others, &all);
    if (CPU_COUNT(&others) == 0)
        others = all;
    pthread_attr_t elsewhere;
    pthread_attr_init(&elsewhere);
    pthread_attr_setaffinity_np(&elsewhere, sizeof others, &others);
    sched_setaffinity(0, sizeof others, &others);
    open_all();
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        perror("sched_setaffinity: the measuring thread runs anywhere");
    end_at_signals();
    if (options.raw && !(raw = fopen(options.raw, "w"))) {
        perror(options.raw);
        return 2;
    }

    static struct row rows[1 + KINDS * MOST_COUNTS];
    size_t count = 1;
    for (unsigned c = 0; with_cuda && c < options.counts; c++)
        for (int kind = 1; kind < KINDS; kind++)
            if (options.kinds & 1u << kind) {
                rows[count].kind = (enum kind)kind;
                rows[count++].threads = options.count[c];
            }
    printf("%zu bytes to the GPU, turns of %g s, measured on CPU %d\n", options.bytes, options.turn, cpu);
    for (int kind = 1; with_cuda && kind < KINDS; kind++)
        if (options.kinds & 1u << kind)
            printf("  %-9s %s, given back at once\n", names[kind], calls[kind]);

    /* Not counted: everything was done once. */
    struct row first;
    memset(&first, 0, sizeof first);
    slice_ours(&first, 20000000);
    slice_prepare(&first, 5000000);
    if (with_cuda)
        slice_cuda(&first, 20000000);
    if (on_cudas_memory)
        slice_pin(&first, 5000000);

    unsigned round = 0;
    int over = 0;
    for (; round < options.rounds && !over; round++)
        for (size_t i = 0; i <= count + 1 && !over; i++) {
            /* Nothing, half of the kinds, nothing, the other half, nothing. */
            size_t middle = 1 + count / 2, which = i == 0 || i == middle || i == count + 1 ? 0 : i < middle ? i : i - 1;
            turn(&rows[which < count ? which : 0], round, &elsewhere);
            over = stop || (options.seconds > 0 && (double)(now() - begin) / 1e9 >= options.seconds);
        }

    for (size_t i = 0; i < count; i++)
        for (int s = 0; s < SERIES; s++)
            sorted(&rows[i].of[s]);
    printf("%.1f s, %u rounds%s\n", (double)(now() - begin) / 1e9, round, over ? ", ended early" : "");
    print_tables(rows, count);
    print_verdict(rows, count);
    if (options.json)
        write_json(rows, count);
    if (raw)
        fclose(raw);
    check(doorbell_free(doorbell), "doorbell_free");
    return wrong ? 1 : 0;
}
