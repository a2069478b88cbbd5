/* Launches of CUDA graphs by many threads: on one launch lane, on eight, and by CUDA. What does a call cost, and how many launches a second are there?
 *
 *   crates/gpu/libdoorbell/install.sh --prefix target/prefix
 *   cc -std=c11 -O2 -pthread docs/results/launch/lanes.c -o target/prefix/lanes -Iexamples/c -Itarget/prefix/include -Ltarget/prefix/lib \
 *      -Wl,-rpath,'$ORIGIN/lib' -ldoorbell -ldl
 *   target/prefix/lanes [MILLISECONDS [ROUNDS [SEED [FORKS]]]]
 *
 * Each thread has a graph of its own for each way: one kernel of one thread, which adds 1 to a word of GPU memory that no other graph touches.
 *
 *   one lane     a session with one launch lane, which all threads share
 *   8 lanes      a session with eight: thread n launches on lane n % 8
 *   CUDA         cuGraphLaunch on a stream for each thread
 *
 * Each way is measured with 1, 8 and 64 threads for MILLISECONDS (500) each, in a random order, ROUNDS (1) times, in one process. The program prints for each:
 *
 *   launches a second: of all threads, until the last launch is done
 *   launch: from the first try until the graph was launched, with the calls that were BUSY
 *   call: the call that launched, alone (of CUDA's there is no other)
 *   BUSY and FULL: calls that launched nothing
 *
 * Every launch is timed. Where no slot of a graph is free (FULL, 32 are under way), a thread waits until half of its launches are done; that time is left out.
 * CUDA's streams are synchronised every 1,000 launches, which is left out, too; a launch that waits in cuGraphLaunch for room counts.
 * Last, four threads of each way launch at once for MILLISECONDS, while the main thread forks FORKS (0) times. Each child tries to launch, which must be refused
 * (FORKED), and ends: half of them by exec, half by _exit.
 * At the end each word must have counted its launches. (CUDA launches a graph a few times while it is prepared: the words are read after that.)
 * On the software GPU no times are printed: that is emulation.
 *
 * Exit status 0: every word right; 1: otherwise; 77: no CUDA, or graphs cannot be cloned here. */
#define _GNU_SOURCE
#include "driver_api.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { SLOTS = 32, SYNCHRONISE_EVERY = 1000, APART = 256, THREADS = 64, LANES = 8, WAYS = 3, COUNTS = 3, AT_ONCE = 4 };
enum way { ONE_LANE, MANY_LANES, BY_CUDA };
static const char *const NAMES[WAYS] = {"one lane", "8 lanes", "CUDA"};
static const unsigned COUNT[COUNTS] = {1, 8, THREADS};

static const char PTX[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry add1(.param .u64 word)\n"
    "{\n"
    "    .reg .b64 %word;\n"
    "    ld.param.u64 %word, [word];\n"
    "    red.global.add.u64 [%word], 1;\n"
    "    ret;\n"
    "}\n";

/* Nanoseconds, in bins: below 2 * PARTS one for each, then PARTS for each power of two. */
enum { PARTS = 64, BINS = 36 * PARTS };
struct times { uint64_t count, max, bins[BINS]; };

static void took(struct times *times, uint64_t ns)
{
    unsigned shift = 0;
    while (ns >> shift >= 2 * PARTS)
        shift++;
    size_t bin = shift * PARTS + (size_t)(ns >> shift);
    times->bins[bin < BINS ? bin : BINS - 1]++;
    times->count++;
    if (ns > times->max)
        times->max = ns;
}

static void add(struct times *all, const struct times *times)
{
    all->count += times->count;
    if (times->max > all->max)
        all->max = times->max;
    for (size_t i = 0; i < BINS; i++)
        all->bins[i] += times->bins[i];
}

/* Nearest ranks, the upper end of their bin; one with fewer than ten samples beyond it is left out. */
static void print_times(const char *what, const struct times *times)
{
    const struct { const char *name; uint64_t of_a_thousand; } ranks[] = {{"p50", 500}, {"p99", 990}, {"p99.9", 999}};
    if (times->count == 0)
        return;
    printf("; %s", what);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        uint64_t rank = (times->count * ranks[i].of_a_thousand + 999) / 1000, below = 0;
        if (times->count * (1000 - ranks[i].of_a_thousand) < 10000)
            continue;
        size_t bin = 0;
        while (bin < BINS - 1 && (below += times->bins[bin]) < rank)
            bin++;
        size_t shift = bin < 2 * PARTS ? 0 : bin / PARTS - 1;
        uint64_t end = ((uint64_t)(bin - shift * PARTS + 1) << shift) - 1;
        printf(" %s %.3f", ranks[i].name, (double)(end < times->max ? end : times->max) / 1e3);
    }
    printf(" max %.3f us", (double)times->max / 1e3);
}

/* One thread's graph by one way. */
struct launcher {
    enum way way;
    doorbell_t *doorbell;
    doorbell_graph_t graph;
    void *exec, *stream;
    address_t word;
    /* What the word held before the first launch, and launches in all. */
    uint64_t before, launched;
    /* Of one measurement: launches, and how many are known to be done; the last tickets. */
    uint64_t made, over, busy, full;
    doorbell_ticket_t tickets[SLOTS];
    struct times launch, call;
};

static struct launcher launchers[WAYS][THREADS];
static pthread_barrier_t start;
static uint64_t end_at;

/* Waits until half of the launches that are under way are done: they end in their order. */
static void wait_for_slots(struct launcher *own)
{
    uint64_t under_way = own->made - own->over;
    if (under_way == 0) {
        /* Other threads have taken the room of the lane. */
        sched_yield();
        return;
    }
    own->over += (under_way + 1) / 2;
    check(doorbell_wait(own->doorbell, own->tickets[(own->over - 1) % SLOTS], PATIENCE), "doorbell_wait");
}

static void launch_by_doorbell(struct launcher *own)
{
    doorbell_ticket_t ticket;
    uint64_t first = now(), begun = first;
    for (unsigned again = 0;;) {
        int code = doorbell_graph_launch(own->doorbell, own->graph, NULL, &ticket);
        if (code == DOORBELL_OK)
            break;
        if (code == DOORBELL_FULL) {
            own->full++;
            wait_for_slots(own);
            first = begun = now();
        } else if (code == DOORBELL_BUSY) {
            own->busy++;
            /* The thread that launches may not be on a CPU. */
            if (++again % 64 == 0)
                sched_yield();
            begun = now();
        } else {
            check(code, "doorbell_graph_launch");
        }
    }
    uint64_t end = now();
    took(&own->launch, end - first);
    took(&own->call, end - begun);
    own->tickets[own->made++ % SLOTS] = ticket;
    if (own->made - own->over > SLOTS)
        own->over = own->made - SLOTS;
}

static void launch_by_cuda(struct launcher *own)
{
    uint64_t begun = now();
    cuda(cuGraphLaunch(own->exec, own->stream), "cuGraphLaunch");
    took(&own->call, now() - begun);
    if (++own->made % SYNCHRONISE_EVERY == 0)
        cuda(cuStreamSynchronize(own->stream), "cuStreamSynchronize");
}

static void *launches(void *of)
{
    struct launcher *own = of;
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    pthread_barrier_wait(&start);
    do
        (own->way == BY_CUDA ? launch_by_cuda : launch_by_doorbell)(own);
    while (!stop && now() < end_at);
    if (own->way == BY_CUDA)
        cuda(cuStreamSynchronize(own->stream), "cuStreamSynchronize");
    else
        check(doorbell_wait(own->doorbell, own->tickets[(own->made - 1) % SLOTS], PATIENCE), "doorbell_wait");
    return NULL;
}

/* What a child of fork ends with: it is refused, and nothing of its parent's is harmed. */
enum { CHILD_REFUSED = 42, CHILD_LAUNCHED = 43 };

/* Forks while others launch; how many children did not end as they should. */
static int fork_children(uint64_t children, const struct launcher *of)
{
    int wrong = 0;
    for (uint64_t i = 0; i < children; i++) {
        int status, as_wanted;
        doorbell_ticket_t ticket;
        pid_t child = fork();
        if (child == 0) {
            int refused = doorbell_graph_launch(of->doorbell, of->graph, NULL, &ticket) == DOORBELL_FORKED;
            if (refused && i % 2 == 0)
                execl("/bin/true", "true", (char *)NULL);
            _exit(refused ? CHILD_REFUSED : CHILD_LAUNCHED);
        }
        if (child < 0 || waitpid(child, &status, 0) != child) {
            perror("fork");
            exit(1);
        }
        as_wanted = WIFEXITED(status) && WEXITSTATUS(status) == (i % 2 == 0 ? 0 : CHILD_REFUSED);
        if (!as_wanted && wrong++ == 0)
            printf("WRONG: child %" PRIu64 " of fork ended with status %#x\n", i, (unsigned)status);
    }
    printf("%" PRIu64 " children of fork, %d of them not refused\n", children, wrong);
    return wrong;
}

/* These threads launch for so long, of all of which `sum` has the figures. Forks meanwhile; returns how many children were not refused. */
static int measure(struct launcher *const who[], unsigned threads, uint64_t ns, uint64_t forks, struct launcher *sum, uint64_t *took_all)
{
    pthread_t handles[THREADS];
    int wrong = 0;
    memset(sum, 0, sizeof *sum);
    if (pthread_barrier_init(&start, NULL, threads + 1) != 0)
        exit(1);
    for (unsigned i = 0; i < threads; i++) {
        struct launcher *own = who[i];
        own->made = own->over = own->busy = own->full = 0;
        memset(&own->launch, 0, sizeof own->launch);
        memset(&own->call, 0, sizeof own->call);
        if (pthread_create(&handles[i], NULL, launches, own) != 0)
            exit(1);
    }
    uint64_t begun = now();
    end_at = begun + ns;
    pthread_barrier_wait(&start);
    if (forks)
        wrong = fork_children(forks, who[0]);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    *took_all = now() - begun;
    pthread_barrier_destroy(&start);
    for (unsigned i = 0; i < threads; i++) {
        who[i]->launched += who[i]->made;
        sum->made += who[i]->made;
        sum->busy += who[i]->busy;
        sum->full += who[i]->full;
        add(&sum->launch, &who[i]->launch);
        add(&sum->call, &who[i]->call);
    }
    return wrong;
}

/* So many threads launch by one way. */
static void measure_way(enum way way, unsigned threads, uint64_t ns, int with_times)
{
    static struct launcher sum;
    struct launcher *who[THREADS];
    uint64_t took_all;
    for (unsigned i = 0; i < threads; i++)
        who[i] = &launchers[way][i];
    measure(who, threads, ns, 0, &sum, &took_all);
    printf("%u thread%s, %s: %" PRIu64 " launches", threads, threads == 1 ? "" : "s", NAMES[way], sum.made);
    if (with_times) {
        printf(", %.0f a second", (double)sum.made * 1e9 / (double)took_all);
        print_times("launch", &sum.launch);
        print_times("call", &sum.call);
    }
    printf("; %" PRIu64 " BUSY, %" PRIu64 " FULL\n", sum.busy, sum.full);
}

/* Threads of all ways at once. */
static int measure_all(uint64_t ns, uint64_t forks)
{
    static struct launcher sum;
    struct launcher *who[WAYS * AT_ONCE];
    uint64_t took_all;
    for (unsigned i = 0; i < WAYS * AT_ONCE; i++)
        who[i] = &launchers[i / AT_ONCE][i % AT_ONCE];
    int wrong = measure(who, WAYS * AT_ONCE, ns, forks, &sum, &took_all);
    printf("%u threads of each way at once:", AT_ONCE);
    for (unsigned way = 0; way < WAYS; way++) {
        uint64_t made = 0;
        for (unsigned i = 0; i < AT_ONCE; i++)
            made += launchers[way][i].made;
        printf("%s %" PRIu64 " by %s", way ? "," : "", made, NAMES[way]);
    }
    printf("\n");
    return wrong;
}

static uint64_t read_word(const struct launcher *own)
{
    uint64_t value;
    cuda(cuMemcpyDtoH(&value, own->word, sizeof value), "cuMemcpyDtoH");
    return value;
}

static void make_graph(struct launcher *own, void *kernel)
{
    void *arguments[] = {&own->word};
    uint64_t zero = 0;
    cuda(cuMemcpyHtoD(own->word, &zero, sizeof zero), "cuMemcpyHtoD");
    cuda(cuStreamCreate(&own->stream, 1), "cuStreamCreate");
    /* Of this thread alone. */
    cuda(cuStreamBeginCapture(own->stream, 1), "cuStreamBeginCapture");
    cuda(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, own->stream, arguments, NULL), "cuLaunchKernel");
    own->exec = captured(own->stream);
}

static void make_clone(struct launcher *own, unsigned thread)
{
    own->graph = cloned(own->doorbell, own->exec, own->stream);
    if (own->way == MANY_LANES) {
        doorbell_graph_t learnt = own->graph;
        check(doorbell_graph_create_copy(own->doorbell, learnt, thread % LANES, &own->graph), "doorbell_graph_create_copy");
        check(doorbell_graph_free(own->doorbell, learnt), "doorbell_graph_free");
    }
}

static uint64_t number(const char *text, uint64_t most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value == 0 || value > most) {
        fprintf(stderr, "%s: not a number from 1 to %" PRIu64 "\n", text, most);
        exit(1);
    }
    return value;
}

int main(int argc, char **argv)
{
    char name[64] = "";
    int wrong = 0;
    void *module;
    address_t words;
    doorbell_t *sessions[2];
    if (argc > 5) {
        fprintf(stderr, "usage: lanes [MILLISECONDS [ROUNDS [SEED [FORKS]]]]\n");
        return 1;
    }
    uint64_t ns = (argc > 1 ? number(argv[1], 3600000) : 500) * 1000000;
    uint64_t rounds = argc > 2 ? number(argv[2], 1000000) : 1;
    uint64_t random = argc > 3 ? number(argv[3], UINT64_MAX) : now();
    uint64_t forks = argc > 4 ? number(argv[4], 1000000) : 0;
    begin_beside_cuda("there are no graphs");
    cuda(cuDeviceGetName(name, sizeof name, 0), "cuDeviceGetName");
    cuda(cuModuleLoadData(&module, PTX), "cuModuleLoadData");
    void *kernel = kernel_of(module, "add1");
    cuda(cuMemAlloc(&words, WAYS * THREADS * APART), "cuMemAlloc");
    for (unsigned i = 0; i < 2; i++) {
        open_session(1, i == 0 ? 1 : LANES);
        sessions[i] = doorbell;
    }
    /* One after the other, and no other thread: while a graph is prepared, nothing else may submit by CUDA. */
    for (unsigned way = 0; way < WAYS; way++) {
        for (unsigned i = 0; i < THREADS; i++) {
            struct launcher *own = &launchers[way][i];
            own->way = (enum way)way;
            own->word = words + (way * THREADS + i) * APART;
            make_graph(own, kernel);
            if (way == BY_CUDA)
                continue;
            own->doorbell = sessions[way];
            make_clone(own, i);
        }
    }
    for (unsigned way = 0; way < WAYS; way++)
        for (unsigned i = 0; i < THREADS; i++)
            launchers[way][i].before = read_word(&launchers[way][i]);
    end_at_signals();
    int with_times = strcmp(name, "softcuda") != 0;
    printf("on %s, %" PRIu64 " ms each\n", name, ns / 1000000);
    for (uint64_t round = 0; round < rounds && !stop; round++) {
        unsigned cells[WAYS * COUNTS];
        for (unsigned i = 0; i < WAYS * COUNTS; i++) {
            /* Each is put at a place among those before it; xorshift64. */
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            unsigned at = (unsigned)(random % (i + 1));
            cells[i] = cells[at];
            cells[at] = i;
        }
        for (unsigned i = 0; i < WAYS * COUNTS && !stop; i++)
            measure_way((enum way)(cells[i] % WAYS), COUNT[cells[i] / WAYS], ns, with_times);
    }
    if (!stop)
        wrong = measure_all(ns, forks) > 0;
    for (unsigned way = 0; way < WAYS; way++) {
        for (unsigned i = 0; i < THREADS; i++) {
            const struct launcher *own = &launchers[way][i];
            uint64_t found = read_word(own) - own->before;
            if (found != own->launched) {
                wrong = 1;
                printf("WRONG: thread %u by %s made %" PRIu64 " launches, and its word counted %" PRIu64 "\n", i, NAMES[way], own->launched, found);
            }
            if (way != BY_CUDA)
                check(doorbell_graph_free(own->doorbell, own->graph), "doorbell_graph_free");
        }
    }
    for (unsigned i = 0; i < 2; i++)
        check(doorbell_free(sessions[i]), "doorbell_free");
    printf(wrong ? "something is WRONG\n" : "all right\n");
    return wrong;
}
