/* A thread with a frame each 500 us (hot.h), next to a thread that makes one kind of call of calls.h: how long is the first held up?
 *
 *     holds SECONDS KIND:SIZE:CALLS...     SIZE: bytes, kernels or nodes, as the kind has it; 0 where it has none
 *     holds                                prints the kinds with their calls
 *
 * Turns follow each other in one process. A turn ends after CALLS calls, or after SECONDS. It prints one line of JSON, with nanoseconds since its beginning:
 * each frame (when it was due, when it ended, and how long its longest copy, its launch and its wait took), and each call with its step (when it began, when
 * it ended). Calls begin while a frame runs, up to 20 us after its beginning: a call of 1 us that begins at any time would seldom meet one.
 *
 *     cc -O2 -o holds holds.c -pthread -ldl
 */
#include "calls.h"
#include <pthread.h>
#include <unistd.h>

enum { WARM = 200, MOST_FRAMES = 1 << 17, MOST_CALLS = 1 << 12, MOST_SECONDS = 60, NS_PER_US = 1000, NS_PER_MS = 1000000 };

/* Between two calls' beginnings, of quick calls and of others; and at least between the end of a call and the next. */
enum { QUICK_NS = 10 * NS_PER_MS, PAUSE_QUICK_NS = 40 * NS_PER_MS, PAUSE_NS = 100 * NS_PER_MS, REST_NS = 40 * NS_PER_MS };

static struct frame { int64_t due, ended; struct parts took; } frame[MOST_FRAMES];
static struct made { int step; int64_t began, ended; } made[MOST_CALLS];
static int calls, wanted, ready, begun, over;
static uint32_t running;
static int64_t longest_turn;
static const struct kind *kind;

#define GET(what) __atomic_load_n(&what, __ATOMIC_ACQUIRE)
#define SET(what, value) __atomic_store_n(&what, value, __ATOMIC_RELEASE)

static void sleep_until(int64_t ns)
{
    for (int64_t left; (left = ns - now_ns()) > 0;) usleep(left / NS_PER_US + 1);
}

/* Until a frame has begun, and up to 20 us more. */
static void into_a_frame(void)
{
    static unsigned seed = 1;
    uint32_t before = GET(running);
    int64_t patience = now_ns() + 5 * NS_PER_MS;
    while (GET(running) == before && now_ns() < patience) {}
    int64_t then = now_ns() + rand_r(&seed) % (20 * NS_PER_US);
    while (now_ns() < then) {}
}

static void *neighbour(void *unused)
{
    CUDA(cuCtxSetCurrent, context);
    int bad = prepare(kind);
    SET(ready, 1);
    while (!GET(begun)) usleep(100);
    int64_t first = now_ns(), next = first;
    for (cycle = 0; !bad && cycle < wanted && now_ns() - first < longest_turn; cycle++) {
        for (const struct step *step = kind->steps; !bad && step < kind->steps + 4 && step->make && calls < MOST_CALLS; step++) {
            sleep_until(next);
            into_a_frame();
            measured_from = 0;
            int64_t began = now_ns();
            bad = step->make();
            int64_t ended = now_ns();
            if (bad) break;
            if (measured_from) began = measured_from;
            made[calls++] = (struct made){step - kind->steps, began, ended};
            next = began + (ended - began < QUICK_NS ? PAUSE_QUICK_NS : PAUSE_NS);
            if (next < ended + REST_NS) next = ended + REST_NS;
        }
    }
    sleep_until(next);
    SET(over, 1);
    clean();
    return unused;
}

static size_t gpu_memory_left(void)
{
    size_t left = 0, all;
    driver_call ask = (driver_call)dlsym(lib, "cuMemGetInfo_v2");
    return ask && !ask(&left, &all) ? left : 0;
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void print_failure(void)
{
    const char *name = 0;
    if (failure.result == NOT_THERE) printf("\"failed\":\"%s: not there\",", failure.call);
    else if (failure.result == SKIPPED) printf("\"failed\":\"skipped: %s\",", failure.call);
    else {
        driver_call ask = (driver_call)dlsym(lib, "cuGetErrorName");
        if (!ask || ask(failure.result, &name)) name = "unknown";
        printf("\"failed\":\"%s: %s (%d)\",", failure.call, name, failure.result);
    }
}

static void turn(const char *word)
{
    size_t left = gpu_memory_left();
    long resident = resident_kib();
    int n = 0, wrong = 0;
    pthread_t thread;
    struct parts took;
    calls = ready = begun = over = 0;
    if (pthread_create(&thread, 0, neighbour, 0)) perror("pthread_create"), exit(1);
    while (!GET(ready)) usleep(100);
    int64_t first = 0, due = now_ns() + NS_PER_MS;
    for (int warm = 0; !GET(over) && n < MOST_FRAMES; due += PERIOD_US * NS_PER_US) {
        while (now_ns() < due) {}
        SET(running, running + 1);
        int64_t ended = hot_frame(n, &took, &wrong);
        if (warm < WARM) {
            if (++warm == WARM) first = due = ended, SET(begun, 1);
            continue;
        }
        frame[n++] = (struct frame){due, ended, took};
        /* Frames that were due meanwhile are skipped. */
        if (ended - due > PERIOD_US * NS_PER_US) due = ended;
    }
    pthread_join(thread, 0);
    printf("{\"turn\":\"%s\",\"wrong\":%d,", word, wrong);
    if (failure.call) print_failure();
    if (left) printf("\"gpu_kib_more\":%lld,", ((long long)left - (long long)gpu_memory_left()) / 1024);
    if (not_ended) printf("\"not_ended\":\"%s\",", not_ended);
    printf("\"host_kib_more\":%ld,\"steps\":[", resident_kib() - resident);
    for (int k = 0; k < 4 && kind->steps[k].make; k++)
        kind->steps[k].name ? printf("%s\"%s\"", k ? "," : "", kind->steps[k].name) : printf("%snull", k ? "," : "");
    printf("],\"calls\":[");
    for (int i = 0; i < calls; i++)
        printf("%s[%d,%lld,%lld]", i ? "," : "", made[i].step, (long long)(made[i].began - first), (long long)(made[i].ended - first));
    printf("],\"frames\":[");
    for (int i = 0; i < n; i++)
        printf("%s[%lld,%lld,%lld,%lld,%lld]", i ? "," : "", (long long)(frame[i].due - first), (long long)(frame[i].ended - first),
               (long long)frame[i].took.copy, (long long)frame[i].took.launch, (long long)frame[i].took.wait);
    printf("]}\n");
    fflush(stdout);
}

/* KIND:SIZE:CALLS; 0 if it is none. */
static int read_turn(const char *word)
{
    char name[32];
    int read = 0;
    kind = 0;
    if (sscanf(word, "%31[^:]:%zu:%d%n", name, &size, &wanted, &read) != 3 || word[read] || wanted < 1) {
        fprintf(stderr, "holds: %s: not KIND:SIZE:CALLS\n", word);
        return 0;
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (!strcmp(kinds[k].name, name)) kind = &kinds[k];
    if (!kind) fprintf(stderr, "holds: there is no kind %s\n", name);
    return !!kind;
}

int main(int count, char **word)
{
    char *end;
    if (count == 1) {
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            printf("%s:", kinds[k].name);
            for (int i = 0; i < 4; i++)
                if (kinds[k].steps[i].name) printf(" %s", kinds[k].steps[i].name);
            printf("\n");
        }
        return 0;
    }
    double seconds = strtod(word[1], &end);
    if (*end || !(seconds > 0) || count < 3) return fprintf(stderr, "holds SECONDS KIND:SIZE:CALLS...\n"), 2;
    /* (There is room for so many frames.) */
    if (seconds > MOST_SECONDS) return fprintf(stderr, "SECONDS is at most %d\n", MOST_SECONDS), 2;
    longest_turn = seconds * 1e9;
    for (int i = 2; i < count; i++)
        if (!read_turn(word[i])) return 2;
    hot_begin();
    for (int i = 2; i < count; i++) read_turn(word[i]), turn(word[i]);
    return 0;
}
