/* Launches of CUDA graphs past CUDA by many threads at once, as many as there is room for: is any launch lost, or made twice?
 *
 *   crates/gpu/libdoorbell/install.sh --prefix target/prefix
 *   cc -std=c11 -O2 -pthread docs/results/launch/many.c -o target/prefix/many -Iexamples/c -Itarget/prefix/include -Ltarget/prefix/lib \
 *      -Wl,-rpath,'$ORIGIN/lib' -ldoorbell -ldl
 *   target/prefix/many THREADS LAUNCHES [SECONDS [FORKS]]
 *
 * Each thread has a graph of its own: one kernel of one thread, which adds 1 to a word of GPU memory that no other graph touches. The threads launch until
 * LAUNCHES in all are made or SECONDS are over. Where no slot is free a thread waits until half of its launches are done. Beside them one thread has CUDA launch a graph, with a
 * word of its own, and synchronises every 1,000 launches. At the end each word must have counted its launches. (CUDA launches a graph a few times while it is
 * prepared: the words are read after that.)
 *
 * With FORKS the main thread forks so often meanwhile. Each child tries to launch, which must be refused (FORKED), and ends: half of them by exec, half by _exit.
 *
 * The program says for each thread and for all: launches, launches a second, the time of the call that launched (every 64th), and the time until that launch
 * was done (every 1,024th; it stands behind the launches that were under way). The times are counted in bins, 1/64 wide at most, so that no memory grows while
 * it launches. BUSY and FULL are calls that launched nothing. (On the software GPU no times: that is emulation.)
 *
 * Exit status 0: every word right; 1: otherwise; 77: no CUDA, or graphs cannot be cloned here. */
#define _GNU_SOURCE
#include "driver_api.h"
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

static doorbell_t *doorbell;

enum { SLOTS = 32, CALL_EVERY = 64, DONE_EVERY = 1024, SYNCHRONISE_EVERY = 1000, APART = 256, MOST_THREADS = 1000 };
#define PATIENCE UINT64_C(10000000000)

/* The part of the CUDA driver API that is needed. */
typedef unsigned long long address_t;
static int (*cuInit)(unsigned);
static int (*cuDeviceGet)(int *, int);
static int (*cuDeviceGetName)(char *, int, int);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc)(address_t *, size_t);
static int (*cuMemcpyHtoD)(address_t, const void *, size_t);
static int (*cuMemcpyDtoH)(void *, address_t, size_t);
static int (*cuStreamCreate)(void **, unsigned);
static int (*cuStreamSynchronize)(void *);
static int (*cuStreamBeginCapture)(void *, int);
static int (*cuStreamEndCapture)(void *, void **);
static int (*cuModuleLoadData)(void **, const void *);
static int (*cuModuleGetFunction)(void **, void *, const char *);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*cuGraphInstantiate)(void **, void *, unsigned long long);
static int (*cuGraphLaunch)(void *, void *);
static int (*cuGraphDestroy)(void *);
static void *context;

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

static int load_cuda(void)
{
    const struct function functions[] = {
        {&cuInit, "cuInit"}, {&cuDeviceGet, "cuDeviceGet"}, {&cuDeviceGetName, "cuDeviceGetName"},
        {&cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"}, {&cuCtxSetCurrent, "cuCtxSetCurrent"},
        {&cuMemAlloc, "cuMemAlloc_v2"}, {&cuMemcpyHtoD, "cuMemcpyHtoD_v2"}, {&cuMemcpyDtoH, "cuMemcpyDtoH_v2"},
        {&cuStreamCreate, "cuStreamCreate"}, {&cuStreamSynchronize, "cuStreamSynchronize"},
        {&cuStreamBeginCapture, "cuStreamBeginCapture_v2"}, {&cuStreamEndCapture, "cuStreamEndCapture"},
        {&cuModuleLoadData, "cuModuleLoadData"}, {&cuModuleGetFunction, "cuModuleGetFunction"},
        {&cuLaunchKernel, "cuLaunchKernel"}, {&cuGraphInstantiate, "cuGraphInstantiateWithFlags"},
        {&cuGraphLaunch, "cuGraphLaunch"}, {&cuGraphDestroy, "cuGraphDestroy"},
    };
    return load_functions(functions, sizeof functions / sizeof *functions);
}

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

/* A thread that launches: by doorbell, or by CUDA. */
struct launcher {
    void *exec, *stream;
    address_t word;
    /* Where the word lies, and what it held before the start. */
    uint64_t before;
    doorbell_graph_t graph;
    /* Launches that were made, and how many of them are known to be done. The last tickets. */
    uint64_t launched, over;
    doorbell_ticket_t tickets[SLOTS];
    uint64_t busy, full, ns;
    struct times call, done;
};

static pthread_barrier_t start;
static _Atomic uint64_t left;
static uint64_t end_at = UINT64_MAX;
static _Atomic int launchers_over;

/* Some of the launches that are left. */
static uint64_t take(void)
{
    uint64_t found = left, taken;
    do
        taken = found < CALL_EVERY ? found : CALL_EVERY;
    while (!atomic_compare_exchange_weak(&left, &found, found - taken));
    return taken;
}

/* Waits until half of the launches that are under way are done: they end in their order. */
static void wait_for_slots(struct launcher *own)
{
    uint64_t under_way = own->launched - own->over;
    if (under_way == 0) {
        /* The room of all is taken by other threads. */
        sched_yield();
        return;
    }
    own->over += (under_way + 1) / 2;
    check(doorbell_wait(doorbell, own->tickets[(own->over - 1) % SLOTS], PATIENCE), "doorbell_wait");
}

static void launch(struct launcher *own)
{
    int timed = own->launched % CALL_EVERY == 0;
    uint64_t begun = 0;
    doorbell_ticket_t ticket;
    for (int again = 0;;) {
        if (timed)
            begun = now();
        int code = doorbell_graph_launch(doorbell, own->graph, NULL, &ticket);
        if (code == DOORBELL_FULL) {
            own->full++;
            wait_for_slots(own);
        } else if (code == DOORBELL_BUSY) {
            own->busy++;
            /* The thread that launches may not be on a CPU. */
            if (++again % 64 == 0)
                sched_yield();
        } else {
            check(code, "doorbell_graph_launch");
            break;
        }
    }
    if (timed)
        took(&own->call, now() - begun);
    if (own->launched % DONE_EVERY == 0) {
        check(doorbell_wait(doorbell, ticket, PATIENCE), "doorbell_wait");
        took(&own->done, now() - begun);
    }
    own->tickets[own->launched++ % SLOTS] = ticket;
    if (own->launched - own->over > SLOTS)
        own->over = own->launched - SLOTS;
}

static void *launches(void *of)
{
    struct launcher *own = of;
    uint64_t begun, taken;
    pthread_barrier_wait(&start);
    begun = now();
    while (!stop && now() < end_at && (taken = take()) > 0)
        for (; taken > 0; taken--)
            launch(own);
    if (own->launched > 0)
        check(doorbell_wait(doorbell, own->tickets[(own->launched - 1) % SLOTS], PATIENCE), "doorbell_wait");
    own->ns = now() - begun;
    return NULL;
}

static void *launches_by_cuda(void *of)
{
    struct launcher *own = of;
    uint64_t begun;
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    pthread_barrier_wait(&start);
    begun = now();
    do {
        uint64_t called = now();
        cuda(cuGraphLaunch(own->exec, own->stream), "cuGraphLaunch");
        if (own->launched++ % CALL_EVERY == 0)
            took(&own->call, now() - called);
        if (own->launched % SYNCHRONISE_EVERY == 0)
            cuda(cuStreamSynchronize(own->stream), "cuStreamSynchronize");
    } while (!launchers_over);
    cuda(cuStreamSynchronize(own->stream), "cuStreamSynchronize");
    own->ns = now() - begun;
    return NULL;
}

/* What a child of fork ends with: it is refused, and nothing of its parent's is harmed. */
enum { CHILD_REFUSED = 42, CHILD_LAUNCHED = 43 };

/* Forks while others launch; how many children did not end as they should. */
static int fork_children(uint64_t children, doorbell_graph_t graph)
{
    int wrong = 0;
    for (uint64_t i = 0; i < children; i++) {
        int status, as_wanted;
        doorbell_ticket_t ticket;
        pid_t child = fork();
        if (child == 0) {
            int refused = doorbell_graph_launch(doorbell, graph, NULL, &ticket) == DOORBELL_FORKED;
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

static uint64_t read_word(const struct launcher *own)
{
    uint64_t value;
    cuda(cuMemcpyDtoH(&value, own->word, sizeof value), "cuMemcpyDtoH");
    return value;
}

static void make_graph(struct launcher *own, void *kernel)
{
    void *graph, *arguments[] = {&own->word};
    uint64_t zero = 0;
    cuda(cuMemcpyHtoD(own->word, &zero, sizeof zero), "cuMemcpyHtoD");
    cuda(cuStreamCreate(&own->stream, 1), "cuStreamCreate");
    /* Of this thread alone. */
    cuda(cuStreamBeginCapture(own->stream, 1), "cuStreamBeginCapture");
    cuda(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, own->stream, arguments, NULL), "cuLaunchKernel");
    cuda(cuStreamEndCapture(own->stream, &graph), "cuStreamEndCapture");
    cuda(cuGraphInstantiate(&own->exec, graph, 0), "cuGraphInstantiate");
    cuda(cuGraphDestroy(graph), "cuGraphDestroy");
}

/* KiB of memory that the process has in use; 0: not known. */
static unsigned long memory_in_use(void)
{
    char line[256];
    unsigned long found = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "VmRSS:", 6) == 0)
            found = strtoul(line + 6, NULL, 10);
    if (status)
        fclose(status);
    return found;
}

static void print(const struct launcher *of, const char *whose, int with_times)
{
    printf("%s: %" PRIu64 " launches", whose, of->launched);
    if (with_times && of->ns > 0) {
        printf(", %.0f a second", (double)of->launched * 1e9 / (double)of->ns);
        print_times("call", &of->call);
        print_times("done", &of->done);
    }
    printf("; %" PRIu64 " BUSY, %" PRIu64 " FULL\n", of->busy, of->full);
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
    char name[64] = "", whose[32];
    int device, wrong = 0;
    void *module, *kernel;
    address_t words;
    doorbell_options_t options;
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: many THREADS LAUNCHES [SECONDS [FORKS]]\n");
        return 1;
    }
    size_t threads = number(argv[1], MOST_THREADS);
    left = number(argv[2], UINT64_MAX / 2);
    uint64_t seconds = argc > 3 ? number(argv[3], 1000000000) : 0;
    uint64_t forks = argc > 4 ? number(argv[4], 1000000) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Before CUDA is initialised: from now on its calls to the kernel driver are seen. */
    int watching = doorbell_init();
    if (!load_cuda()) {
        printf("no libcuda: there are no graphs\n");
        return 77;
    }
    check(watching, "doorbell_init");
    cuda(cuInit(0), "cuInit");
    cuda(cuDeviceGet(&device, 0), "cuDeviceGet");
    cuda(cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
    cuda(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    cuda(cuModuleLoadData(&module, PTX), "cuModuleLoadData");
    cuda(cuModuleGetFunction(&kernel, module, "add1"), "cuModuleGetFunction");
    cuda(cuMemAlloc(&words, (threads + 1) * APART), "cuMemAlloc");
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.kind = DOORBELL_BESIDE_CUDA;
    check(doorbell_create(&options, &doorbell), "doorbell_create");
    /* The last one is CUDA's; one more for the sums. */
    struct launcher *all = calloc(threads + 2, sizeof *all), *theirs = all + threads, *sum = theirs + 1;
    pthread_t *handles = calloc(threads + 1, sizeof *handles);
    if (!all || !handles)
        return 1;
    /* One after the other, and no other thread: while a graph is prepared, nothing else may submit by CUDA. */
    for (size_t i = 0; i <= threads; i++) {
        all[i].word = words + i * APART;
        make_graph(&all[i], kernel);
        if (&all[i] == theirs)
            continue;
        int prepared = doorbell_graph_create(doorbell, all[i].exec, all[i].stream, &all[i].graph);
        if (prepared == DOORBELL_UNAVAILABLE) {
            printf("the graph cannot be cloned: %s\n", doorbell_error_detail());
            return 77;
        }
        check(prepared, "doorbell_graph_create");
    }
    for (size_t i = 0; i <= threads; i++)
        all[i].before = read_word(&all[i]);
    if (pthread_barrier_init(&start, NULL, (unsigned)threads + 2) != 0)
        return 1;
    for (size_t i = 0; i <= threads; i++)
        if (pthread_create(&handles[i], NULL, &all[i] == theirs ? launches_by_cuda : launches, &all[i]) != 0)
            return 1;
    end_at_signals();
    unsigned long memory = memory_in_use();
    uint64_t begun = now();
    if (seconds)
        end_at = begun + seconds * 1000000000;
    printf("%zu threads launch beside one of CUDA's\n", threads);
    pthread_barrier_wait(&start);
    if (forks)
        wrong = fork_children(forks, all[0].graph) > 0;
    for (size_t i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    sum->ns = now() - begun;
    launchers_over = 1;
    pthread_join(handles[threads], NULL);
    int with_times = strcmp(name, "softcuda") != 0;
    for (size_t i = 0; i < threads; i++) {
        sum->launched += all[i].launched;
        sum->busy += all[i].busy;
        sum->full += all[i].full;
        add(&sum->call, &all[i].call);
        add(&sum->done, &all[i].done);
        snprintf(whose, sizeof whose, "thread %zu", i);
        print(&all[i], whose, with_times);
    }
    print(sum, "all by doorbell", with_times);
    print(theirs, "CUDA beside them", with_times);
    printf("memory in use: %lu KiB at the start, %lu KiB at the end\n", memory, memory_in_use());
    for (size_t i = 0; i <= threads; i++) {
        uint64_t found = read_word(&all[i]) - all[i].before;
        if (found == all[i].launched)
            continue;
        wrong = 1;
        printf("WRONG: %s %zu made %" PRIu64 " launches, and its word counted %" PRIu64 "\n",
               &all[i] == theirs ? "CUDA's thread," : "thread", i, all[i].launched, found);
    }
    for (size_t i = 0; i < threads; i++)
        check(doorbell_graph_free(doorbell, all[i].graph), "doorbell_graph_free");
    check(doorbell_free(doorbell), "doorbell_free");
    printf(wrong ? "something is WRONG\n" : "all right\n");
    return wrong;
}
